/* Element types and their promotion. Everything but promotion is read from DTYPE_TABLE. */
#include "base/dtype.h"

typedef struct {
    const char *torch_name, *hlo_name;
    int bits;
    dtype_kind kind;
} dtype_row;

/* clang-format off */
static const dtype_row rows[DTYPE_COUNT] = {
    [DTYPE_INVALID] = {"invalid", "invalid", 0, DTYPE_KIND_BOOL},
#define X(name, torch_name, hlo_name, bits, kind) [DTYPE_##name] = {torch_name, hlo_name, bits, kind},
    DTYPE_TABLE(X)
#undef X
};
/* clang-format on */

static const dtype_row *row(dtype t) { return &rows[(unsigned)t < DTYPE_COUNT ? t : DTYPE_INVALID]; }

const char *dtype_torch_name(dtype t) { return row(t)->torch_name; }
const char *dtype_hlo_name(dtype t) { return row(t)->hlo_name; }
size_t dtype_bytes(dtype t) { return (size_t)row(t)->bits / 8; }
int dtype_bits(dtype t) { return row(t)->bits; }
dtype_kind dtype_get_kind(dtype t) { return row(t)->kind; }
bool dtype_is_float(dtype t) { return row(t)->kind == DTYPE_KIND_FLOAT; }
bool dtype_is_complex(dtype t) { return row(t)->kind == DTYPE_KIND_COMPLEX; }
bool dtype_is_int(dtype t) { return row(t)->kind == DTYPE_KIND_INT; }

bool dtype_is_signed(dtype t) {
    switch (t) {
        case DTYPE_U8:
        case DTYPE_U16:
        case DTYPE_U32:
        case DTYPE_U64:
            return false;
        default:
            return row(t)->kind != DTYPE_KIND_BOOL;
    }
}

dtype dtype_real(dtype t) { return t == DTYPE_C64 ? DTYPE_F32 : t == DTYPE_C128 ? DTYPE_F64 : t; }

dtype dtype_complex(dtype t) {
    switch (t) {
        case DTYPE_F16:
        case DTYPE_BF16:
        case DTYPE_F32:
        case DTYPE_C64:
            return DTYPE_C64;
        case DTYPE_F64:
        case DTYPE_C128:
            return DTYPE_C128;
        default:
            return DTYPE_INVALID;
    }
}

dtype dtype_opmath(dtype t) { return dtype_is_float(t) && dtype_bits(t) < 32 ? DTYPE_F32 : t; }

static bool is_float8(dtype t) { return dtype_is_float(t) && dtype_bits(t) == 8; }

/* The unsigned types that c10 added late and gave no place in the promotion lattice. */
static bool is_wide_unsigned(dtype t) { return t == DTYPE_U16 || t == DTYPE_U32 || t == DTYPE_U64; }

/* The rules of c10/core/ScalarType.cpp (promoteTypes), which relies on DTYPE_TABLE listing each kind from narrow to
 * wide. */
dtype dtype_promote(dtype a, dtype b) {
    if (a == b) return a;
    if (a > b) {
        dtype swapped = a;
        a = b;
        b = swapped;
    }
    if (a <= DTYPE_INVALID || b >= DTYPE_COUNT || is_float8(a) || is_float8(b)) return DTYPE_INVALID;
    /* Wide unsigned integers promote to a float beside them and with nothing else. */
    if (is_wide_unsigned(a) || is_wide_unsigned(b)) return dtype_is_float(b) ? b : DTYPE_INVALID;
    if (dtype_is_complex(b)) return a == DTYPE_F64 ? DTYPE_C128 : b;
    if (a == DTYPE_F16 && b == DTYPE_BF16) return DTYPE_F32; /* neither holds the other */
    if (a == DTYPE_U8 && b == DTYPE_I8) return DTYPE_I16;    /* neither holds the other */
    return b;
}
