"""Names that existing programs import from here."""
