/* What the plugin refused to compile, kept so that it can be compiled again and reported: program.mlir, options.txt
 * (for readers), options.pb (xla.CompileOptionsProto) and error.txt in a directory of its own. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/environment.h"
#include "exec/internal.h"

static bool write_file(const strbuf *directory, const char *name, const void *data, size_t size) {
    strbuf path;
    strbuf_init(&path);
    strbuf_printf(&path, "%s/%s", strbuf_text(directory), name);
    FILE *f = strbuf_failed(&path) ? NULL : fopen(strbuf_text(&path), "wb");
    bool written = f && fwrite(data, 1, size, f) == size;
    if (f && fclose(f) != 0) written = false;
    strbuf_free(&path);
    return written;
}

static bool find_directory(const char *mlir, size_t size, const strbuf *options, strbuf *out) {
    const char *dump = environment_text("TORCH_TPU_DUMP_DIR");
    if (dump)
        strbuf_puts(out, dump);
    else if (!disk_local_directory(out))
        return false;
    uint64_t of_program[2], of_options = hash_bytes(options->data, options->size);
    hash_bytes128(mlir, size, of_program);
    strbuf_printf(out, "/failed/%016" PRIx64, of_program[0] ^ of_options);
    if (strbuf_failed(out)) return false;
    disk_make_directories(strbuf_text(out));
    return true;
}

status *reproducer_keep(status *error, const char *mlir, size_t size, const pjrt_compile_options *options) {
    if (!error) return NULL;
    strbuf directory, serialized, readable;
    strbuf_init(&directory);
    strbuf_init(&serialized);
    strbuf_init(&readable);
    pjrt_compile_options_serialize(options, &serialized);
    for (int i = 0; i < options->n_flags; i++)
        strbuf_printf(&readable, "%s=%s\n", options->flag_names[i], options->flag_values[i]);
    const char *message = status_message(error);
    bool kept = find_directory(mlir, size, &serialized, &directory) &&
                write_file(&directory, "program.mlir", mlir, size) &&
                write_file(&directory, "options.txt", strbuf_text(&readable), readable.size) &&
                write_file(&directory, "options.pb", strbuf_text(&serialized), serialized.size) &&
                write_file(&directory, "error.txt", message, strlen(message));
    status *told = kept ? status_new(status_get_code(error), "%s\nThe program and its options are kept in %s", message,
                                     strbuf_text(&directory))
                        : status_new(status_get_code(error),
                                     "%s\nTo keep the program, name a directory in TORCH_TPU_DUMP_DIR", message);
    strbuf_free(&directory);
    strbuf_free(&serialized);
    strbuf_free(&readable);
    status_free(error);
    return told;
}
