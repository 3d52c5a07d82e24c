/* Element types, held against what PyTorch 2.13 says of them. */
#include "base/dtype.h"

#include "check.h"

enum { TYPES = DTYPE_COUNT - 1 };

/* Short names in DTYPE_TABLE's order, and torch.promote_types of every pair of them; "--" where it raises. */
static const char *const short_names[TYPES] = {"b",  "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "e4",
                                               "e5", "z4", "z5", "f16", "bf",  "f32", "f64", "c64", "c128"};
static const char *const promotions[TYPES] = {
    "b    u8   i8   --   i16  --   i32  --   i64  --   --   --   --   f16  bf   f32  f64  c64  c128",
    "u8   u8   i16  --   i16  --   i32  --   i64  --   --   --   --   f16  bf   f32  f64  c64  c128",
    "i8   i16  i8   --   i16  --   i32  --   i64  --   --   --   --   f16  bf   f32  f64  c64  c128",
    "--   --   --   u16  --   --   --   --   --   --   --   --   --   f16  bf   f32  f64  --   --",
    "i16  i16  i16  --   i16  --   i32  --   i64  --   --   --   --   f16  bf   f32  f64  c64  c128",
    "--   --   --   --   --   u32  --   --   --   --   --   --   --   f16  bf   f32  f64  --   --",
    "i32  i32  i32  --   i32  --   i32  --   i64  --   --   --   --   f16  bf   f32  f64  c64  c128",
    "--   --   --   --   --   --   --   u64  --   --   --   --   --   f16  bf   f32  f64  --   --",
    "i64  i64  i64  --   i64  --   i64  --   i64  --   --   --   --   f16  bf   f32  f64  c64  c128",
    "--   --   --   --   --   --   --   --   --   e4   --   --   --   --   --   --   --   --   --",
    "--   --   --   --   --   --   --   --   --   --   e5   --   --   --   --   --   --   --   --",
    "--   --   --   --   --   --   --   --   --   --   --   z4   --   --   --   --   --   --   --",
    "--   --   --   --   --   --   --   --   --   --   --   --   z5   --   --   --   --   --   --",
    "f16  f16  f16  f16  f16  f16  f16  f16  f16  --   --   --   --   f16  f32  f32  f64  c64  c128",
    "bf   bf   bf   bf   bf   bf   bf   bf   bf   --   --   --   --   f32  bf   f32  f64  c64  c128",
    "f32  f32  f32  f32  f32  f32  f32  f32  f32  --   --   --   --   f32  f32  f32  f64  c64  c128",
    "f64  f64  f64  f64  f64  f64  f64  f64  f64  --   --   --   --   f64  f64  f64  f64  c128 c128",
    "c64  c64  c64  --   c64  --   c64  --   c64  --   --   --   --   c64  c64  c64  c128 c64  c128",
    "c128 c128 c128 --   c128 --   c128 --   c128 --   --   --   --   c128 c128 c128 c128 c128 c128",
};

static dtype from_short_name(const char *name) {
    for (int t = 1; t < DTYPE_COUNT; t++)
        if (strcmp(short_names[t - 1], name) == 0) return (dtype)t;
    return DTYPE_INVALID;
}

static void test_promotion(void) {
    for (int a = 1; a < DTYPE_COUNT; a++) {
        const char *row = promotions[a - 1];
        for (int b = 1, used; b < DTYPE_COUNT; b++, row += used) {
            char name[8];
            if (!CHECK(sscanf(row, "%7s%n", name, &used) == 1)) return;
            CHECK_TEXT(dtype_torch_name(dtype_promote((dtype)a, (dtype)b)), dtype_torch_name(from_short_name(name)));
        }
        CHECK_INT(dtype_promote((dtype)a, DTYPE_INVALID), DTYPE_INVALID);
        CHECK_INT(dtype_promote((dtype)a, DTYPE_COUNT), DTYPE_INVALID);
    }
}

static void test_names_and_sizes(void) {
    CHECK_TEXT(dtype_torch_name(DTYPE_F32), "float32");
    CHECK_TEXT(dtype_hlo_name(DTYPE_F32), "f32");
    CHECK_TEXT(dtype_torch_name(DTYPE_BOOL), "bool");
    CHECK_TEXT(dtype_hlo_name(DTYPE_BOOL), "i1");
    CHECK_TEXT(dtype_hlo_name(DTYPE_C128), "complex<f64>");
    CHECK_TEXT(dtype_torch_name(DTYPE_INVALID), "invalid");
    CHECK_TEXT(dtype_torch_name((dtype)999), "invalid");
    CHECK_INT(dtype_bytes(DTYPE_BOOL), 1);
    CHECK_INT(dtype_bytes(DTYPE_F8E5M2), 1);
    CHECK_INT(dtype_bytes(DTYPE_BF16), 2);
    CHECK_INT(dtype_bytes(DTYPE_C64), 8);
    CHECK_INT(dtype_bytes(DTYPE_C128), 16);
    CHECK_INT(dtype_bits(DTYPE_U16), 16);
    CHECK_INT(dtype_bytes(DTYPE_INVALID), 0);
}

static void test_kinds(void) {
    CHECK(!dtype_is_int(DTYPE_BOOL) && !dtype_is_signed(DTYPE_BOOL) && !dtype_is_float(DTYPE_BOOL));
    CHECK(dtype_is_int(DTYPE_U64) && !dtype_is_signed(DTYPE_U64));
    CHECK(!dtype_is_signed(DTYPE_U8) && !dtype_is_signed(DTYPE_U16) && !dtype_is_signed(DTYPE_U32));
    CHECK(dtype_is_int(DTYPE_I8) && dtype_is_signed(DTYPE_I8));
    CHECK(dtype_is_float(DTYPE_F8E4M3FNUZ) && dtype_is_float(DTYPE_F64) && dtype_is_signed(DTYPE_F16));
    CHECK(dtype_is_complex(DTYPE_C64) && dtype_is_signed(DTYPE_C64) && !dtype_is_float(DTYPE_C64));
    CHECK(!dtype_is_float(DTYPE_INVALID) && !dtype_is_int(DTYPE_INVALID) && !dtype_is_complex(DTYPE_INVALID));
    CHECK(!dtype_is_signed(DTYPE_INVALID));
    CHECK_INT(dtype_get_kind(DTYPE_BF16), DTYPE_KIND_FLOAT);
}

static void test_relatives(void) {
    CHECK_INT(dtype_real(DTYPE_C64), DTYPE_F32);
    CHECK_INT(dtype_real(DTYPE_C128), DTYPE_F64);
    CHECK_INT(dtype_real(DTYPE_I32), DTYPE_I32);
    CHECK_INT(dtype_complex(DTYPE_F32), DTYPE_C64);
    CHECK_INT(dtype_complex(DTYPE_F64), DTYPE_C128);
    CHECK_INT(dtype_complex(DTYPE_F16), DTYPE_C64);
    CHECK_INT(dtype_complex(DTYPE_C128), DTYPE_C128);
    CHECK_INT(dtype_complex(DTYPE_I32), DTYPE_INVALID);
    CHECK_INT(dtype_opmath(DTYPE_F16), DTYPE_F32);
    CHECK_INT(dtype_opmath(DTYPE_BF16), DTYPE_F32);
    CHECK_INT(dtype_opmath(DTYPE_F8E4M3FN), DTYPE_F32);
    CHECK_INT(dtype_opmath(DTYPE_F64), DTYPE_F64);
    CHECK_INT(dtype_opmath(DTYPE_I8), DTYPE_I8);
    CHECK_INT(dtype_opmath(DTYPE_C64), DTYPE_C64);
}

int main(void) {
    test_promotion();
    test_names_and_sizes();
    test_kinds();
    test_relatives();
    return check_report();
}
