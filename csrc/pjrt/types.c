/* PJRT_Buffer_Type beside dtype. */
#include "pjrt/internal.h"

static const PJRT_Buffer_Type types[DTYPE_COUNT] = {
    [DTYPE_INVALID] = PJRT_Buffer_Type_INVALID,
    [DTYPE_BOOL] = PJRT_Buffer_Type_PRED,
    [DTYPE_U8] = PJRT_Buffer_Type_U8,
    [DTYPE_I8] = PJRT_Buffer_Type_S8,
    [DTYPE_U16] = PJRT_Buffer_Type_U16,
    [DTYPE_I16] = PJRT_Buffer_Type_S16,
    [DTYPE_U32] = PJRT_Buffer_Type_U32,
    [DTYPE_I32] = PJRT_Buffer_Type_S32,
    [DTYPE_U64] = PJRT_Buffer_Type_U64,
    [DTYPE_I64] = PJRT_Buffer_Type_S64,
    [DTYPE_F8E4M3FN] = PJRT_Buffer_Type_F8E4M3FN,
    [DTYPE_F8E5M2] = PJRT_Buffer_Type_F8E5M2,
    [DTYPE_F8E4M3FNUZ] = PJRT_Buffer_Type_F8E4M3FNUZ,
    [DTYPE_F8E5M2FNUZ] = PJRT_Buffer_Type_F8E5M2FNUZ,
    [DTYPE_F16] = PJRT_Buffer_Type_F16,
    [DTYPE_BF16] = PJRT_Buffer_Type_BF16,
    [DTYPE_F32] = PJRT_Buffer_Type_F32,
    [DTYPE_F64] = PJRT_Buffer_Type_F64,
    [DTYPE_C64] = PJRT_Buffer_Type_C64,
    [DTYPE_C128] = PJRT_Buffer_Type_C128,
};

PJRT_Buffer_Type pjrt_type_from_dtype(dtype t) {
    return (unsigned)t < DTYPE_COUNT ? types[t] : PJRT_Buffer_Type_INVALID;
}

dtype pjrt_type_to_dtype(PJRT_Buffer_Type type) {
    for (int t = 1; t < DTYPE_COUNT; t++)
        if (types[t] == type) return (dtype)t;
    return DTYPE_INVALID;
}

bool pjrt_dense_bytes(dtype t, int rank, const int64_t *dims, int64_t *out) {
    int64_t bytes = (int64_t)dtype_bytes(t);
    for (int i = 0; i < rank; i++)
        if (dims[i] < 0 || __builtin_mul_overflow(bytes, dims[i], &bytes)) return false;
    *out = bytes;
    return true;
}
