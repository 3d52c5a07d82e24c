/* Compile options as the bytes of xla.CompileOptionsProto (xla/pjrt/proto/compile_options.proto), written field by
 * field in protocol buffers' wire format (https://protobuf.dev/programming-guides/encoding), so that no protobuf
 * library is needed. */
#include <string.h>
#include <strings.h>

#include "pjrt/internal.h"

enum wire_type { VARINT = 0, LENGTH_DELIMITED = 2 };

enum {
    /* CompileOptionsProto */
    OPTIONS_BUILD = 3,
    OPTIONS_PORTABLE = 4,
    OPTIONS_OVERRIDES = 7, /* map<string, OptionOverrideProto>: a repeated message of key and value */
    /* ExecutableBuildOptionsProto */
    BUILD_DEVICE_ORDINAL = 1,
    BUILD_REPLICAS = 4,
    BUILD_PARTITIONS = 5,
    BUILD_SPMD = 6,
    /* a map's entry */
    ENTRY_KEY = 1,
    ENTRY_VALUE = 2,
    /* OptionOverrideProto */
    OVERRIDE_STRING = 1,
    OVERRIDE_BOOL = 2,
};

static void put_varint(strbuf *out, uint64_t value) {
    unsigned char bytes[10];
    size_t n = 0;
    for (; value > 0x7f; value >>= 7) bytes[n++] = (unsigned char)(value | 0x80);
    bytes[n++] = (unsigned char)value;
    strbuf_append(out, bytes, n);
}

static void put_tag(strbuf *out, int field, enum wire_type type) { put_varint(out, (uint64_t)field << 3 | type); }

static void put_int(strbuf *out, int field, int64_t value) {
    put_tag(out, field, VARINT);
    put_varint(out, (uint64_t)value);
}

static void put_bytes(strbuf *out, int field, const char *data, size_t size) {
    put_tag(out, field, LENGTH_DELIMITED);
    put_varint(out, size);
    strbuf_append(out, data, size);
}

/* Writes a message that was gathered apart, since its length stands before it, and empties it. */
static void put_message(strbuf *out, int field, strbuf *message) {
    put_bytes(out, field, message->data, message->size);
    if (message->failed) out->failed = true;
    strbuf_clear(message);
}

/* XLA parses a string for a flag of any type, but of booleans it takes only "True" and "False": those travel as
 * booleans. */
static void put_override(strbuf *out, const char *name, const char *value) {
    strbuf entry, override;
    strbuf_init(&entry);
    strbuf_init(&override);
    if (strcasecmp(value, "true") == 0 || strcasecmp(value, "false") == 0)
        put_int(&override, OVERRIDE_BOOL, strcasecmp(value, "true") == 0);
    else
        put_bytes(&override, OVERRIDE_STRING, value, strlen(value));
    put_bytes(&entry, ENTRY_KEY, name, strlen(name));
    put_message(&entry, ENTRY_VALUE, &override);
    put_message(out, OPTIONS_OVERRIDES, &entry);
    strbuf_free(&entry);
    strbuf_free(&override);
}

void pjrt_compile_options_serialize(const pjrt_compile_options *o, strbuf *out) {
    strbuf build;
    strbuf_init(&build);
    put_int(&build, BUILD_DEVICE_ORDINAL, -1); /* not set; 0 would be a device */
    put_int(&build, BUILD_REPLICAS, o->num_replicas ? o->num_replicas : 1);
    put_int(&build, BUILD_PARTITIONS, o->num_partitions ? o->num_partitions : 1);
    if (o->use_spmd) put_int(&build, BUILD_SPMD, 1);
    put_message(out, OPTIONS_BUILD, &build);
    strbuf_free(&build);
    for (int i = 0; i < o->n_flags; i++) put_override(out, o->flag_names[i], o->flag_values[i]);
}

void pjrt_compile_options_make_portable(strbuf *serialized) { put_int(serialized, OPTIONS_PORTABLE, 1); }
