/* Element types, declared once: DTYPE_TABLE rows are (enumerator, torch name, StableHLO name, bits, category). */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { DTYPE_KIND_BOOL, DTYPE_KIND_INT, DTYPE_KIND_FLOAT, DTYPE_KIND_COMPLEX } dtype_kind;

#define DTYPE_TABLE(X)                                                  \
    X(BOOL, "bool", "i1", 8, DTYPE_KIND_BOOL)                           \
    X(U8, "uint8", "ui8", 8, DTYPE_KIND_INT)                            \
    X(I8, "int8", "i8", 8, DTYPE_KIND_INT)                              \
    X(U16, "uint16", "ui16", 16, DTYPE_KIND_INT)                        \
    X(I16, "int16", "i16", 16, DTYPE_KIND_INT)                          \
    X(U32, "uint32", "ui32", 32, DTYPE_KIND_INT)                        \
    X(I32, "int32", "i32", 32, DTYPE_KIND_INT)                          \
    X(U64, "uint64", "ui64", 64, DTYPE_KIND_INT)                        \
    X(I64, "int64", "i64", 64, DTYPE_KIND_INT)                          \
    X(F8E4M3FN, "float8_e4m3fn", "f8E4M3FN", 8, DTYPE_KIND_FLOAT)       \
    X(F8E5M2, "float8_e5m2", "f8E5M2", 8, DTYPE_KIND_FLOAT)             \
    X(F8E4M3FNUZ, "float8_e4m3fnuz", "f8E4M3FNUZ", 8, DTYPE_KIND_FLOAT) \
    X(F8E5M2FNUZ, "float8_e5m2fnuz", "f8E5M2FNUZ", 8, DTYPE_KIND_FLOAT) \
    X(F16, "float16", "f16", 16, DTYPE_KIND_FLOAT)                      \
    X(BF16, "bfloat16", "bf16", 16, DTYPE_KIND_FLOAT)                   \
    X(F32, "float32", "f32", 32, DTYPE_KIND_FLOAT)                      \
    X(F64, "float64", "f64", 64, DTYPE_KIND_FLOAT)                      \
    X(C64, "complex64", "complex<f32>", 64, DTYPE_KIND_COMPLEX)         \
    X(C128, "complex128", "complex<f64>", 128, DTYPE_KIND_COMPLEX)

typedef enum {
    DTYPE_INVALID = 0,
#define X(name, torch_name, hlo_name, bits, kind) DTYPE_##name,
    DTYPE_TABLE(X)
#undef X
        DTYPE_COUNT
} dtype;

const char *dtype_torch_name(dtype t); /* "float32"; "invalid" for DTYPE_INVALID */
const char *dtype_hlo_name(dtype t);   /* "f32" */
size_t dtype_bytes(dtype t);           /* bool is 1 */
int dtype_bits(dtype t);
dtype_kind dtype_get_kind(dtype t);
bool dtype_is_float(dtype t);
bool dtype_is_complex(dtype t);
bool dtype_is_int(dtype t);    /* signed or unsigned, not bool */
bool dtype_is_signed(dtype t); /* signed integers, floats, complex */
dtype dtype_real(dtype t);     /* C64 -> F32, C128 -> F64, else itself */
dtype dtype_complex(dtype t);  /* F32 -> C64, F64 -> C128, F16/BF16 -> C64; complex itself; else DTYPE_INVALID */
dtype dtype_opmath(dtype t);   /* the type PyTorch accumulates in: F16, BF16, F8* -> F32, else itself */
/* PyTorch's promoteTypes (c10/core/ScalarType.cpp): the smallest type that holds both. DTYPE_INVALID where PyTorch
 * refuses (float8 with another type, unsigned 16..64 with a different integer). */
dtype dtype_promote(dtype a, dtype b);

#endif
