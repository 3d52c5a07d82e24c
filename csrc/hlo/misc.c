/* Factorisations, Fourier transforms, random bits, barriers and custom calls. */
#include <string.h>

#include "hlo/internal.h"

/* ---- linear algebra ---- */

static bool check_matrices(hlo_builder *b, const char *name, int index, hlo_value x, bool square) {
    bool number = dtype_is_float(x->dtype) || dtype_is_complex(x->dtype);
    if (number && x->rank >= 2 && (!square || x->dims[x->rank - 1] == x->dims[x->rank - 2])) return true;
    hlo_fail(b, number ? STATUS_RUNTIME : STATUS_TYPE, "%s: operand %d, %s, must be %smatrices of floats", name, index,
             hlo_value_text(b, x), square ? "square " : "");
    return false;
}

hlo_value hlo_cholesky(hlo_builder *b, hlo_value x, bool lower) {
    const char *name = "stablehlo.cholesky";
    if (!hlo_ready(b, 1, &x) || !check_matrices(b, name, 0, x, true)) return NULL;
    hlo_attribute_bool(b, "lower", lower);
    return hlo_emit_one(b, name, 1, &x, x->dtype, x->rank, x->dims);
}

hlo_value hlo_triangular_solve(hlo_builder *b, hlo_value a, hlo_value x, bool left, bool lower, bool unit_diagonal,
                               int transpose) {
    static const char *const names[] = {"NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
    const char *name = "stablehlo.triangular_solve";
    hlo_value operands[2] = {a, x};
    if (!hlo_ready(b, 2, operands) || !check_matrices(b, name, 0, a, true) || !check_matrices(b, name, 1, x, false) ||
        !hlo_check_dtype(b, name, 1, x, a->dtype))
        return NULL;
    bool fits = a->rank == x->rank && a->dims[a->rank - 1] == x->dims[x->rank - (left ? 2 : 1)];
    for (int d = 0; fits && d + 2 < a->rank; d++) fits = a->dims[d] == x->dims[d];
    if (!fits || transpose < 0 || transpose > 2)
        return hlo_fail(b, STATUS_RUNTIME, "%s: operand 1, %s, does not fit operand 0, %s (transpose %d)", name,
                        hlo_value_text(b, x), hlo_value_text(b, a), transpose);
    hlo_attribute_bool(b, "left_side", left);
    hlo_attribute_bool(b, "lower", lower);
    hlo_attribute_bool(b, "unit_diagonal", unit_diagonal);
    hlo_attribute(b, "transpose_a", "#stablehlo<transpose %s>", names[transpose]);
    return hlo_emit_one(b, name, 2, operands, x->dtype, x->rank, x->dims);
}

/* ---- Fourier transforms ---- */

hlo_value hlo_fft(hlo_builder *b, hlo_value x, hlo_fft_type type, int n, const int64_t *lengths) {
    static const char *const names[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
    const char *name = "stablehlo.fft";
    if (!hlo_ready(b, 1, &x)) return NULL;
    bool real_input = type == HLO_RFFT;
    if (real_input ? x->dtype != DTYPE_F32 && x->dtype != DTYPE_F64 : !dtype_is_complex(x->dtype))
        return hlo_fail(b, STATUS_TYPE, "%s: operand 0, %s, is of a type that %s does not take", name,
                        hlo_value_text(b, x), names[type]);
    if (n < 1 || n > 3 || n > x->rank)
        return hlo_fail(b, STATUS_RUNTIME, "%s: %d dimensions of operand 0, %s", name, n, hlo_value_text(b, x));
    int64_t dims[HLO_MAX_RANK];
    memcpy(dims, x->dims, sizeof(int64_t) * (size_t)x->rank);
    for (int i = 0; i < n; i++) {
        int d = x->rank - n + i;
        int64_t expected = type == HLO_IRFFT && i == n - 1 ? lengths[i] / 2 + 1 : lengths[i];
        if (x->dims[d] != expected)
            return hlo_fail(b, STATUS_RUNTIME, "%s: dimension %d of operand 0, %s, must be %lld", name, d,
                            hlo_value_text(b, x), (long long)expected);
    }
    if (type == HLO_RFFT) dims[x->rank - 1] = lengths[n - 1] / 2 + 1;
    if (type == HLO_IRFFT) dims[x->rank - 1] = lengths[n - 1];
    dtype t = type == HLO_RFFT ? dtype_complex(x->dtype) : type == HLO_IRFFT ? dtype_real(x->dtype) : x->dtype;
    hlo_attribute(b, "fft_type", "#stablehlo<fft_type %s>", names[type]);
    hlo_attribute_ints(b, "fft_length", n, lengths);
    return hlo_emit_one(b, name, 1, &x, t, x->rank, dims);
}

/* ---- random bits, barriers, custom calls ---- */

void hlo_rng_bit_generator(hlo_builder *b, hlo_value state, dtype t, int rank, const int64_t *dims,
                           hlo_value *next_state, hlo_value *bits) {
    const char *name = "stablehlo.rng_bit_generator";
    hlo_value results[2] = {NULL, NULL};
    *next_state = *bits = NULL;
    if (!hlo_ready(b, 1, &state)) return;
    if (state->dtype != DTYPE_U64 || state->rank != 1 || state->dims[0] != 2) {
        hlo_fail(b, STATUS_TYPE, "%s: operand 0, %s, must be ui64[2]", name, hlo_value_text(b, state));
        return;
    }
    if (!dtype_is_int(t) || dtype_is_signed(t)) {
        hlo_fail(b, STATUS_TYPE, "%s: bits of type %s, which is not unsigned", name, dtype_hlo_name(t));
        return;
    }
    hlo_type types[2] = {hlo_type_of(state), {t, rank, dims}};
    hlo_attribute(b, "rng_algorithm", "#stablehlo<rng_algorithm THREE_FRY>");
    hlo_operation o = {.name = name, .n_operands = 1, .operands = &state, .n_results = 2, .types = types};
    hlo_emit(b, &o, results);
    *next_state = results[0];
    *bits = results[1];
}

void hlo_optimization_barrier(hlo_builder *b, int n, const hlo_value *x, hlo_value *results) {
    hlo_type *types = ARENA_NEW(b->arena, hlo_type, n);
    if (!types) hlo_out_of_memory(b);
    if (!hlo_ready(b, n, x) || n == 0) {
        for (int i = 0; i < n; i++) results[i] = NULL;
        return;
    }
    for (int i = 0; i < n; i++) types[i] = hlo_type_of(x[i]);
    hlo_operation o = {
        .name = "stablehlo.optimization_barrier", .n_operands = n, .operands = x, .n_results = n, .types = types};
    hlo_emit(b, &o, results);
}

static bool add_function(hlo_builder *b, const char *name, const char *text) {
    for (const hlo_function *f = b->functions; f; f = f->next)
        if (strcmp(f->name, name) == 0) return true;
    hlo_function *f = ARENA_NEW(b->arena, hlo_function, 1);
    if (!f) return hlo_out_of_memory(b) != NULL;
    *f = (hlo_function){name, text, b->functions};
    b->functions = f;
    return true;
}

void hlo_call_function(hlo_builder *b, const char *name, const char *text, int n, const hlo_value *operands,
                       int n_results, const hlo_type *types, hlo_value *results) {
    for (int i = 0; i < n_results; i++) results[i] = NULL;
    if (!hlo_ready(b, n, operands) || !add_function(b, name, text)) return;
    hlo_attribute(b, "callee", "@%s", name);
    hlo_operation o = {
        .name = "func.call", .n_operands = n, .operands = operands, .n_results = n_results, .types = types};
    hlo_emit(b, &o, results);
}

/* A string of MLIR: quotes, backslashes and control characters escaped. */
static void append_quoted(strbuf *out, const char *text) {
    strbuf_puts(out, "\"");
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\' || *c < 32 || *c > 126)
            strbuf_printf(out, "\\%02X", *c);
        else
            strbuf_append(out, c, 1);
    }
    strbuf_puts(out, "\"");
}

void hlo_custom_call(hlo_builder *b, const char *target, const char *backend_config, bool has_side_effect, int n,
                     const hlo_value *operands, int n_results, const hlo_type *types, hlo_value *results) {
    for (int i = 0; i < n_results && !hlo_ready(b, n, operands); i++) results[i] = NULL;
    if (!hlo_ready(b, n, operands)) return;
    hlo_attribute(b, "call_target_name", "%s", "");
    append_quoted(&b->attributes, target);
    hlo_attribute_bool(b, "has_side_effect", has_side_effect);
    if (backend_config) {
        hlo_attribute(b, "backend_config", "%s", "");
        strbuf_puts(&b->attributes, backend_config);
        hlo_attribute(b, "api_version", "4 : i32"); /* the version whose backend_config is a dictionary */
    }
    hlo_operation o = {
        .name = "stablehlo.custom_call", .n_operands = n, .operands = operands, .n_results = n_results, .types = types};
    hlo_emit(b, &o, results);
}
