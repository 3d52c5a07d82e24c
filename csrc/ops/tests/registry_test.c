/* The operator tables: every name once, found by it, with one lowering. */
#include "base/tests/check.h"
#include "ops/ops.h"

static int rows;

static void visit(const op_row *row, void *context) {
    (void)context;
    rows++;
    if (op_find(row->name) != row) CHECK_TEXT("a second row of this name", row->name);
    if ((row->lower != NULL) + (row->unary != NULL) + (row->binary != NULL) != 1)
        CHECK_TEXT("not one lowering", row->name);
    CHECK(!strncmp(row->name, "aten::", 6) || !strncmp(row->name, "prims::", 7) || strstr(row->name, "::"));
}

int main(void) {
    op_visit(visit, NULL);
    CHECK(rows > 900 && rows < 4096); /* the index has 8192 places */
    CHECK(!op_find("aten::no_such_operator") && !op_find("") && !op_find(NULL));
    CHECK_TEXT(op_find("aten::add.Tensor")->name, "aten::add.Tensor");
    return check_report();
}
