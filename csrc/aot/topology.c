#include "aot/topology.h"

#include <stdio.h>
#include <string.h>

#define GIB ((int64_t)1 << 30)

/* HBM, peaks, bandwidth and slices are those of Google's pages of each generation. Clocks follow from the peaks:
 * peak = TensorCores * products a cycle * 2 flops * clock, with the products of four 128x128 matrix units a core (v4,
 * v5e, v5p) or of four 256x256 ones (v6e, tpu7x); the compiler's cycles for a large matrix product agree with that.
 *
 * libtpu accepts slices that do not exist, and ends the process on some names, so names are checked here. Where the
 * interconnect has three dimensions every A <= B <= C of multiples of 4 up to the largest slice exists ("4x4x4 cubes").
 */
static const aot_generation generations[] = {
    {"v4", "TPU v4", 3, 2, 32 * GIB, 1228e9, 275e12, 275e12, 0, 1.05e9, 4096, 16, "2x2x1 2x2x2 2x2x4 2x4x4",
     "https://cloud.google.com/tpu/docs/v4"},
    {"v5e", "TPU v5 lite", 2, 1, 16 * GIB, 819e9, 197e12, 393e12, 0, 1.5e9, 0, 0, "1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16",
     "https://cloud.google.com/tpu/docs/v5e"},
    {"v5p", "TPU v5", 3, 1, 95 * GIB, 2765e9, 459e12, 918e12, 0, 1.75e9, 6144, 24, "1x1x1 2x2x1 2x2x2 2x2x4 2x4x4",
     "https://cloud.google.com/tpu/docs/v5p"},
    {"v6e", "TPU v6 lite", 2, 1, 32 * GIB, 1640e9, 918e12, 1836e12, 0, 1.75e9, 0, 0,
     "1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16", "https://cloud.google.com/tpu/docs/v6e"},
    {"tpu7x", "TPU7x", 3, 2, 192 * GIB, 7380e9, 2307e12, 0, 4614e12, 2.2e9, 9216, 24, "1x1x1 2x2x1 2x2x2 2x2x4 2x4x4",
     "https://cloud.google.com/tpu/docs/tpu7x"},
};

enum { N_GENERATIONS = sizeof generations / sizeof *generations };

int aot_generation_count(void) { return N_GENERATIONS; }
const aot_generation *aot_generation_at(int i) { return &generations[i]; }

/* ---- slices ---- */

static bool is_listed(const aot_generation *g, const char *slice) {
    size_t size = strlen(slice);
    for (const char *at = g->slices; (at = strstr(at, slice)); at += size) {
        bool begins = at == g->slices || at[-1] == ' ', ends = at[size] == 0 || at[size] == ' ';
        if (begins && ends) return true;
    }
    return false;
}

static bool is_cubes(const aot_generation *g, const int sides[3]) {
    if (!g->max_chips || sides[0] > sides[1] || sides[1] > sides[2] || sides[2] > g->max_side) return false;
    for (int d = 0; d < 3; d++)
        if (sides[d] < 4 || sides[d] % 4) return false;
    return sides[0] * sides[1] * sides[2] <= g->max_chips;
}

/* "2x4" or "2x2x1": how many sides; 0 where it is something else. */
static int parse_sides(const char *text, int sides[3]) {
    int n = 0;
    sides[0] = sides[1] = sides[2] = 1;
    for (;; text++) {
        int side = 0, digits = 0;
        for (; *text >= '0' && *text <= '9' && digits < 4; text++, digits++) side = side * 10 + (*text - '0');
        if (!digits || n == 3) return 0;
        sides[n++] = side;
        if (!*text) return n;
        if (*text != 'x') return 0;
    }
}

static void describe_slices(const aot_generation *g, strbuf *out) {
    strbuf_puts(out, g->slices);
    if (g->max_chips)
        strbuf_printf(out, ", and every AxBxC of multiples of 4 with A <= B <= C <= %d and at most %d chips",
                      g->max_side, g->max_chips);
}

static status *no_generation(const char *name) {
    strbuf names;
    strbuf_init(&names);
    for (int i = 0; i < N_GENERATIONS; i++) strbuf_printf(&names, "%s%s", i ? ", " : "", generations[i].name);
    status *s = status_new(STATUS_VALUE,
                           "there is no TPU topology \"%s\": a name is generation:slice, as v5e:2x2 or v5p:2x2x1; "
                           "generations are %s",
                           name, strbuf_text(&names));
    strbuf_free(&names);
    return s;
}

static status *no_slice(const char *name, const aot_generation *g) {
    strbuf slices;
    strbuf_init(&slices);
    describe_slices(g, &slices);
    status *s = status_new(STATUS_VALUE, "there is no TPU topology \"%s\": slices of %s are %s", name, g->name,
                           strbuf_text(&slices));
    strbuf_free(&slices);
    return s;
}

status *aot_slice_find(const char *name, aot_slice *out) {
    const char *colon = strchr(name, ':');
    const aot_generation *g = NULL;
    for (int i = 0; colon && i < N_GENERATIONS && !g; i++)
        if (strlen(generations[i].name) == (size_t)(colon - name) &&
            memcmp(generations[i].name, name, (size_t)(colon - name)) == 0)
            g = &generations[i];
    if (!g) return no_generation(name);
    *out = (aot_slice){.generation = g};
    int n = parse_sides(colon + 1, out->sides);
    if (n != g->dimensions || !(is_listed(g, colon + 1) || (n == 3 && is_cubes(g, out->sides))))
        return no_slice(name, g);
    out->chips = out->sides[0] * out->sides[1] * out->sides[2];
    out->devices = out->chips * g->devices_per_chip;
    return NULL;
}

void aot_topologies_print(strbuf *out) {
    strbuf_puts(out, "[");
    for (int i = 0; i < N_GENERATIONS; i++) {
        const aot_generation *g = &generations[i];
        strbuf slices;
        strbuf_init(&slices);
        describe_slices(g, &slices);
        strbuf_printf(out,
                      "%s{\"name\": \"%s\", \"device_kind\": \"%s\", \"slices\": \"%s\", \"devices_per_chip\": %d, "
                      "\"hbm_bytes\": %lld, "
                      "\"hbm_bytes_per_s\": %.6g, \"bf16_flops\": %.6g, \"int8_ops\": %.6g, \"fp8_flops\": %.6g, "
                      "\"clock_hz\": %.6g, \"source\": \"%s\"}",
                      i ? ",\n " : "", g->name, g->device_kind, strbuf_text(&slices), g->devices_per_chip,
                      (long long)g->hbm_bytes, g->hbm_bytes_per_s, g->bf16_flops, g->int8_ops, g->fp8_flops,
                      g->clock_hz, g->source);
        strbuf_free(&slices);
    }
    strbuf_puts(out, "]\n");
}
