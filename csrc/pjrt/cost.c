/* What a compiled program costs, as its compiler tells. */
#include <math.h>
#include <string.h>

#include "pjrt/internal.h"

static bool is_named(const PJRT_NamedValue *v, const char *name) {
    return v->name_size == strlen(name) && memcmp(v->name, name, v->name_size) == 0;
}

static double number_of(const PJRT_NamedValue *v) {
    switch (v->type) {
        case PJRT_NamedValue_kFloat:
            return (double)v->float_value;
        case PJRT_NamedValue_kInt64:
            return (double)v->int64_value;
        default:
            return -1;
    }
}

/* XLA's cost analysis counts -1 second for an operation that it has no figure for, and the figures of small programs
 * add up to far less than a second: the fraction is what is known. */
static double known_seconds(double seconds) { return seconds < 0 ? seconds - floor(seconds) : seconds; }

static status *read_analysis(const PJRT_Api *api, PJRT_Executable *executable, pjrt_cost *out) {
    PJRT_Executable_GetCostAnalysis_Args args = PJRT_ARGS(PJRT_Executable_GetCostAnalysis, .executable = executable);
    STATUS_TRY(PJRT_CALL(api, PJRT_Executable_GetCostAnalysis, &args));
    for (size_t i = 0; i < args.num_properties; i++) {
        const PJRT_NamedValue *v = &args.properties[i];
        if (is_named(v, "flops")) out->flops = number_of(v);
        if (is_named(v, "bytes accessed")) out->bytes_accessed = number_of(v);
        if (is_named(v, "optimal_seconds")) out->optimal_seconds = known_seconds(number_of(v));
    }
    return NULL;
}

static status *read_memory(const PJRT_Api *api, PJRT_Executable *executable, pjrt_cost *out) {
    PJRT_Executable_GetCompiledMemoryStats_Args args =
        PJRT_ARGS(PJRT_Executable_GetCompiledMemoryStats, .executable = executable);
    STATUS_TRY(PJRT_CALL(api, PJRT_Executable_GetCompiledMemoryStats, &args));
    out->argument_bytes = args.argument_size_in_bytes;
    out->output_bytes = args.output_size_in_bytes;
    out->temp_bytes = args.temp_size_in_bytes;
    out->alias_bytes = args.alias_size_in_bytes;
    out->code_bytes = args.generated_code_size_in_bytes;
    return NULL;
}

/* A plugin need not know: that is an answer, not an error. */
static status *forgive_unknown(status *s) {
    if (!s || status_get_code(s) != STATUS_NOT_IMPLEMENTED) return s;
    status_free(s);
    return NULL;
}

status *pjrt_cost_read(const PJRT_Api *api, PJRT_Executable *executable, pjrt_cost *out) {
    *out = (pjrt_cost){-1, -1, -1, -1, -1, -1, -1, -1};
    STATUS_TRY(forgive_unknown(read_analysis(api, executable, out)));
    return forgive_unknown(read_memory(api, executable, out));
}
