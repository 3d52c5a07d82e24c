#include "aot/compile.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "aot/module.h"
#include "aot/topology.h"
#include "base/alloc.h"
#include "exec/ahead.h"

/* ---- files ---- */

static status *read_file(const char *path, strbuf *out) {
    FILE *f = fopen(path, "rb");
    if (!f) return status_new(STATUS_NOT_FOUND, "%s: %s", path, strerror(errno));
    char block[65536];
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;) strbuf_append(out, block, n);
    bool failed = ferror(f);
    fclose(f);
    if (failed) return status_new(STATUS_RUNTIME, "%s: cannot be read", path);
    return strbuf_failed(out) ? status_no_memory() : NULL;
}

static status *write_file(const char *directory, const char *name, const strbuf *contents) {
    strbuf path;
    strbuf_init(&path);
    strbuf_printf(&path, "%s/%s", directory, name);
    FILE *f = strbuf_failed(&path) || strbuf_failed(contents) ? NULL : fopen(strbuf_text(&path), "wb");
    bool written = f && fwrite(strbuf_text(contents), 1, contents->size, f) == contents->size;
    if (f) written = fclose(f) == 0 && written;
    status *s =
        written ? NULL : status_new(STATUS_RUNTIME, "%s: cannot be written: %s", strbuf_text(&path), strerror(errno));
    strbuf_free(&path);
    return s;
}

/* ---- JSON ---- */

static void put_text(strbuf *out, const char *text) {
    strbuf_puts(out, "\"");
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\') strbuf_puts(out, "\\");
        if ((unsigned char)*c < 0x20)
            strbuf_printf(out, "\\u%04x", (unsigned char)*c);
        else
            strbuf_append(out, c, 1);
    }
    strbuf_puts(out, "\"");
}

static void put_number(strbuf *out, const char *name, double value) {
    strbuf_printf(out, "\"%s\": ", name);
    if (isfinite(value) && value >= 0)
        strbuf_printf(out, "%.17g,\n", value);
    else
        strbuf_puts(out, "null,\n");
}

static void put_cost_lines(strbuf *out, const aot_costs *costs, const aot_generation *g, int most) {
    strbuf_puts(out, "\"operations\": [");
    for (int i = 0; i < costs->n && i < most; i++) {
        const aot_cost_line *line = &costs->lines[i];
        const aot_instruction *op = line->instruction, *place = line->place;
        strbuf_puts(out, i ? ",\n {\"name\": " : "\n {\"name\": ");
        put_text(out, op->name);
        strbuf_puts(out, ", \"opcode\": ");
        put_text(out, op->opcode);
        strbuf_puts(out, ", \"op_name\": ");
        put_text(out, place->op_name);
        strbuf_puts(out, ", \"source_file\": ");
        put_text(out, place->source_file);
        strbuf_printf(out, ", \"source_line\": %d, \"runs\": %lld, \"seconds\": %.9g, \"share\": %.6g}",
                      place->source_line, (long long)line->runs, line->cycles / g->clock_hz,
                      costs->cycles > 0 ? line->cycles / costs->cycles : 0.0);
    }
    strbuf_puts(out, "],\n");
}

/* XLA's analysis counts -1 second for an operation without a figure; pjrt_cost keeps the fraction then. Where the
 * backend's cycles say that whole seconds were lost with it, they come back. */
static double whole_seconds(double seconds, const aot_costs *costs, const aot_generation *g) {
    double by_cycles = (costs->cycles - costs->extra_cycles) / g->clock_hz;
    if (seconds < 0 || seconds >= 1 || by_cycles < 1) return seconds;
    return seconds + fmax(0, round(by_cycles - seconds));
}

typedef struct compiled {
    pjrt_cost cost;
    strbuf serialized, optimized;
    bool with_config;
    pjrt_topology_info info;
    aot_costs costs;
} compiled;

static void put_result(strbuf *out, const aot_request *r, const aot_slice *slice, const compiled *c,
                       const char *entry) {
    const aot_generation *g = slice->generation;
    const pjrt_cost *cost = &c->cost;
    double seconds = whole_seconds(cost->optimal_seconds, &c->costs, g);
    double loops = c->costs.extra_cycles / g->clock_hz;
    strbuf_puts(out, "{\"topology\": ");
    put_text(out, r->topology);
    strbuf_puts(out, ",\n\"device_kind\": ");
    put_text(out, strbuf_text(&c->info.kind));
    strbuf_puts(out, ",\n\"compiler\": ");
    put_text(out, strbuf_text(&c->info.version));
    strbuf_puts(out, ",\n\"cache_entry\": ");
    put_text(out, entry);
    strbuf_printf(out, ",\n\"chips\": %d,\n\"devices\": %d,\n", slice->chips, c->info.devices);
    int64_t share = g->hbm_bytes / g->devices_per_chip;
    put_number(out, "hbm_bytes",
               (double)(c->info.memory_bytes > 0 && c->info.memory_bytes < share ? c->info.memory_bytes : share));
    put_number(out, "peak_flops", g->bf16_flops / g->devices_per_chip);
    put_number(out, "peak_int8_ops", g->int8_ops / g->devices_per_chip);
    put_number(out, "peak_fp8_flops", g->fp8_flops / g->devices_per_chip);
    put_number(out, "hbm_bytes_per_s", g->hbm_bytes_per_s / g->devices_per_chip);
    put_number(out, "optimal_seconds", seconds < 0 ? -1 : seconds + loops);
    put_number(out, "seconds_in_repeated_loops", loops);
    put_number(out, "cycle_seconds", c->costs.cycles / g->clock_hz);
    put_number(out, "flops", cost->flops);
    put_number(out, "bytes_accessed", cost->bytes_accessed);
    put_number(out, "argument_bytes", (double)cost->argument_bytes);
    put_number(out, "output_bytes", (double)cost->output_bytes);
    put_number(out, "alias_bytes", (double)cost->alias_bytes);
    put_number(out, "temp_bytes", (double)cost->temp_bytes);
    put_number(out, "code_bytes", (double)cost->code_bytes);
    put_number(out, "executable_bytes", (double)c->serialized.size);
    strbuf_printf(out, "\"loops\": %d,\n\"loops_of_unknown_count\": %d,\n", c->costs.loops, c->costs.unknown_loops);
    put_cost_lines(out, &c->costs, g, r->costliest);
    strbuf_puts(out, "\"source\": ");
    put_text(out, g->source);
    strbuf_puts(out, "}\n");
}

/* ---- the steps ---- */

static status *analyse(const aot_request *r, arena *a, compiled *c) {
    aot_module module;
    strbuf text;
    STATUS_TRY(aot_module_read(a, c->optimized.data, c->optimized.size, c->with_config, &module));
    STATUS_TRY(aot_costs_find(a, &module, &c->costs));
    strbuf_init(&text);
    aot_module_print(&module, &text);
    status *s = write_file(r->directory, "optimized.hlo.txt", &text);
    strbuf_free(&text);
    return s;
}

static status *report(const aot_request *r, const aot_slice *slice, const compiled *c, const char *entry) {
    strbuf json;
    strbuf_init(&json);
    put_result(&json, r, slice, c, entry);
    status *s = write_file(r->directory, "result.json", &json);
    strbuf_free(&json);
    return s;
}

static status *compile(const aot_request *r, const aot_slice *slice, const strbuf *program, compiled *c, arena *a) {
    pjrt_plugin *plugin;
    pjrt_topology *topology;
    STATUS_TRY(pjrt_plugin_load(r->plugin, &plugin));
    STATUS_TRY(pjrt_topology_create(plugin, r->topology, &topology));
    pjrt_compiled wanted = {&c->cost, &c->serialized, &c->optimized, &c->with_config};
    strbuf entry;
    strbuf_init(&entry);
    status *s = pjrt_topology_describe(topology, &c->info);
    if (!s && c->info.devices != slice->devices)
        s = status_new(STATUS_INTERNAL, "%s has %d devices by our table and %d by the compiler's", r->topology,
                       slice->devices, c->info.devices);
    if (!s) s = pjrt_compile_for_topology(topology, program->data, program->size, &r->options, &wanted);
    if (!s) s = analyse(r, a, c);
    if (!s) s = write_file(r->directory, "executable.bin", &c->serialized);
    if (!s && r->store)
        s = ahead_store(r->plugin, &c->info, program->data, program->size, &r->options, &c->serialized, &entry);
    if (!s) s = report(r, slice, c, strbuf_text(&entry));
    pjrt_topology_info_free(&c->info);
    strbuf_free(&entry);
    pjrt_topology_destroy(topology);
    return s;
}

status *aot_compile(const aot_request *r) {
    aot_slice slice;
    STATUS_TRY(aot_slice_find(r->topology, &slice));
    strbuf program;
    compiled c = {0};
    strbuf_init(&program);
    arena *a = arena_create();
    status *s = a ? read_file(r->program, &program) : status_no_memory();
    if (!s) s = compile(r, &slice, &program, &c, a);
    strbuf_free(&program);
    strbuf_free(&c.serialized);
    strbuf_free(&c.optimized);
    if (a) arena_destroy(a);
    return s;
}
