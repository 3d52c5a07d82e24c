/* Storages: each owns one base value. */
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "exec/internal.h"

storage *storage_list;

/* ---- address ranges: reserved, never backed by memory. A storage's range has the size of its class, so that pointers
 * of distinct storages never overlap; freed ranges are used again last-in first-out, and when the region is used up the
 * larger ones are halved. ---- */

#define SMALLEST_CLASS 6 /* 64 bytes */
#define LARGEST_CLASS 42 /* 4 TiB, more than any device has; the region holds 16 */

static char *region, *region_next, *region_end;
static void **free_ranges[LARGEST_CLASS + 1];
static size_t free_count[LARGEST_CLASS + 1], free_capacity[LARGEST_CLASS + 1];

static bool reserve_region(void) {
    for (size_t size = (size_t)1 << 46; size >= (size_t)1 << 32; size >>= 2) {
        void *p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) continue;
        region = region_next = p;
        region_end = region + size;
        return true;
    }
    return false;
}

static int class_of(int64_t bytes) {
    int c = SMALLEST_CLASS;
    while (c <= LARGEST_CLASS && ((int64_t)1 << c) < bytes) c++;
    return c;
}

/* Keeps a free range of class c. Without memory to remember it the range is lost, which is only address space. */
static void keep_range(int c, char *range) {
    if (free_count[c] == free_capacity[c]) {
        size_t wanted = free_capacity[c] ? 2 * free_capacity[c] : 64;
        void **grown = mem_realloc(free_ranges[c], wanted * sizeof *grown);
        if (!grown) return;
        free_ranges[c] = grown;
        free_capacity[c] = wanted;
    }
    free_ranges[c][free_count[c]++] = range;
}

/* The first part of a larger free range; the halves that are left over stay free. NULL: there is none. */
static char *split_range(int c) {
    int larger = c + 1;
    while (larger <= LARGEST_CLASS && !free_count[larger]) larger++;
    if (larger > LARGEST_CLASS) return NULL;
    char *range = free_ranges[larger][--free_count[larger]];
    while (larger > c) {
        larger--;
        keep_range(larger, range + ((size_t)1 << larger));
    }
    return range;
}

/* Under the lock. */
static bool take_address(storage *s) {
    s->address = NULL;
    if (s->bytes == 0) return true;
    int c = class_of(s->bytes);
    if (c > LARGEST_CLASS) return false;
    s->address_class = c;
    if (free_count[c]) {
        s->address = free_ranges[c][--free_count[c]];
        return true;
    }
    if (!region && !reserve_region()) return false;
    size_t size = (size_t)1 << c;
    if ((size_t)(region_end - region_next) < size) {
        s->address = split_range(c);
        return s->address;
    }
    s->address = region_next;
    region_next += size;
    return true;
}

static void give_address(storage *s) {
    if (s->address) keep_range(s->address_class, s->address);
    s->address = NULL;
}

/* ---- life ---- */

static void link_storage(storage *s) {
    s->next = storage_list;
    if (s->next) s->next->previous = s;
    storage_list = s;
}

static void unlink_storage(storage *s) {
    if (s->previous)
        s->previous->next = s->next;
    else
        storage_list = s->next;
    if (s->next) s->next->previous = s->previous;
}

storage *storage_find(const void *address, int64_t *distance) {
    exec_acquire();
    storage *s = storage_list;
    const char *wanted = address;
    while (s && !(s->address && wanted >= (char *)s->address && wanted - (char *)s->address < s->bytes)) s = s->next;
    if (s) *distance = wanted - (char *)s->address;
    exec_release();
    return s;
}

storage *storage_create_locked(int64_t bytes, int device) {
    if (bytes < 0) return NULL;
    storage *s = mem_alloc(sizeof *s);
    if (!s) return NULL;
    s->bytes = bytes;
    s->device = device;
    s->pending = -1;
    if (!take_address(s)) {
        mem_free(s);
        return NULL;
    }
    link_storage(s);
    COUNT(storages, 1);
    return s;
}

storage *storage_create(int64_t bytes, int device) {
    exec_acquire();
    storage *s = storage_create_locked(bytes, device);
    exec_release();
    return s;
}

static void count_bytes(int64_t n) {
    int64_t live = COUNT(bytes_live, n) + n;
    if (live > atomic_load_explicit(&counts.bytes_peak, memory_order_relaxed))
        atomic_store_explicit(&counts.bytes_peak, live, memory_order_relaxed);
}

void storage_set_base(storage *s, pjrt_buffer *b, const base_type *t) {
    if (s->base) {
        count_bytes(-base_type_bytes(&s->type));
        pjrt_buffer_release(s->base);
    }
    s->base = b;
    s->external_serial = 0;
    s->raw = false;
    if (s->pending >= 0) fused_forget(s);
    if (s->lost) {
        mem_free(s->lost);
        s->lost = NULL;
    }
    if (!b) return;
    s->indices = indices_serial();
    s->type = *t;
    count_bytes(base_type_bytes(t));
}

void storage_destroy_locked(storage *s) {
    storage_set_base(s, NULL, NULL);
    give_address(s);
    unlink_storage(s);
    COUNT(storages, -1);
    mem_free(s);
}

void storage_destroy(storage *s) {
    if (!s) return;
    exec_acquire();
    storage_destroy_locked(s);
    exec_release();
}

int64_t storage_bytes(const storage *s) { return s->bytes; }
int storage_device(const storage *s) { return s->device; }
void *storage_address(const storage *s) { return s->address; }
bool storage_has_value(const storage *s) { return s->base || s->pending >= 0; }

static pthread_cond_t settled = PTHREAD_COND_INITIALIZER;

bool storage_settle(storage *s) {
    bool waited = s->writing;
    while (s->writing) pthread_cond_wait(&settled, &exec_lock);
    return waited;
}

void storage_settled(void) { pthread_cond_broadcast(&settled); }

/* The base of a storage, computed if it is pending. *out stays NULL for a storage without a value. */
static status *take_base(storage *s, pjrt_buffer **out) {
    *out = NULL;
    if (fused_pending(s)) STATUS_TRY(fused_flush());
    exec_acquire();
    storage_settle(s);
    status *result = s->lost ? status_new(STATUS_RUNTIME, "%s", s->lost) : NULL;
    if (!result && s->base) *out = pjrt_buffer_retain(s->base);
    exec_release();
    return result;
}

/* ---- types of bases ---- */

void base_type_init(base_type *t, dtype d, int rank, const int64_t *dims) {
    t->dtype = d;
    if (rank <= STORAGE_MAX_RANK) {
        t->rank = rank;
        for (int i = 0; i < rank; i++) t->dims[i] = dims[i];
        return;
    }
    t->rank = 1;
    t->dims[0] = 1;
    for (int i = 0; i < rank; i++) t->dims[0] *= dims[i];
}

bool base_type_equal(const base_type *a, const base_type *b) {
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dims, b->dims, sizeof(int64_t) * (size_t)a->rank) == 0;
}

int64_t base_type_bytes(const base_type *t) {
    int64_t n = (int64_t)dtype_bytes(t->dtype);
    for (int i = 0; i < t->rank; i++) n *= t->dims[i];
    return n;
}

/* ---- out of memory ---- */

#define HOLDERS 5

static void print_holder(strbuf *out, const storage *s) {
    strbuf_printf(out, "\n  %.1f MiB: %s [", (double)base_type_bytes(&s->type) / (1 << 20),
                  dtype_torch_name(s->type.dtype));
    for (int i = 0; i < s->type.rank; i++) strbuf_printf(out, i ? ", %lld" : "%lld", (long long)s->type.dims[i]);
    strbuf_puts(out, "]");
}

static void print_holders(strbuf *out) {
    const storage *largest[HOLDERS] = {NULL};
    int64_t total = 0, n = 0;
    for (const storage *s = storage_list; s; s = s->next) {
        if (!s->base || pjrt_buffer_failed(s->base)) continue;
        total += base_type_bytes(&s->type);
        n++;
        int at = HOLDERS;
        while (at > 0 && (!largest[at - 1] || base_type_bytes(&s->type) > base_type_bytes(&largest[at - 1]->type)))
            at--;
        if (at == HOLDERS) continue;
        memmove(&largest[at + 1], &largest[at], sizeof *largest * (size_t)(HOLDERS - 1 - at));
        largest[at] = s;
    }
    if (n == 0) {
        strbuf_puts(out, "\nNo other tensor's memory is held: use a smaller one");
        return;
    }
    strbuf_printf(out, "\n%lld tensors' memory is held, %.1f MiB; the largest:", (long long)n,
                  (double)total / (1 << 20));
    for (int i = 0; i < HOLDERS && largest[i]; i++) print_holder(out, largest[i]);
    strbuf_puts(
        out,
        "\nDelete tensors that are not needed, or use a smaller batch; torch.tpu.empty_cache() has nothing to free");
}

status *storage_name_holders(status *s) {
    if (!s || status_get_code(s) != STATUS_OUT_OF_MEMORY || strstr(status_message(s), "out of host memory")) return s;
    strbuf text;
    strbuf_init(&text);
    exec_acquire();
    print_holders(&text);
    exec_release();
    status *named =
        strbuf_failed(&text) ? NULL : status_new(STATUS_OUT_OF_MEMORY, "%s%s", status_message(s), text.data);
    strbuf_free(&text);
    if (!named) return s;
    status_free(s);
    return named;
}

/* ---- internal programs on storages ---- */

/* to <- row(from), as calls whose results are known. */
static status *run_row(const op_row *row, const core_tensor *from, core_tensor *to) {
    operator_info *op = operator_of_row(row);
    if (!op) return status_no_memory();
    argument arg = {.tag = ARG_VALUE, .u.tensor = (void *)from};
    call_result result;
    result.kind = RESULT_WRITE;
    result.target = to;
    result.storage = NULL;
    call c = {.op = op,
              .n_args = 1,
              .args = &arg,
              .n_results = 1,
              .results = &result,
              .max_results = 1,
              .results_known = true,
              .device = to->storage->device};
    return exec_call(&c);
}

static void flat_geometry(geometry *g, dtype t, int64_t count) { geometry_contiguous(g, t, 1, &count); }

status *storage_retype(storage *s, dtype t) {
    core_tensor flat;
    flat.storage = s;
    exec_acquire();
    bool needed = s->base && s->raw;
    s->raw = false;
    exec_release();
    if (!needed) return NULL;
    flat_geometry(&flat.geometry, t, s->bytes / (int64_t)dtype_bytes(t));
    return run_row(&row_assign, &flat, &flat);
}

/* dtype of the base in units of which both sizes are whole, else bytes. */
static dtype resize_unit(const storage *s, int64_t bytes) {
    int64_t size = (int64_t)dtype_bytes(s->type.dtype);
    return bytes % size == 0 && s->bytes % size == 0 ? s->type.dtype : DTYPE_U8;
}

/* Trades contents and address of two storages; under the lock. */
static void swap_storage(storage *a, storage *b) {
    pjrt_buffer *base_b = b->base ? pjrt_buffer_retain(b->base) : NULL;
    base_type type_b = b->type;
    storage_set_base(b, NULL, NULL);
    storage_set_base(a, base_b, &type_b);
    void *address = a->address;
    int address_class = a->address_class;
    int64_t bytes = a->bytes;
    a->address = b->address;
    a->address_class = b->address_class;
    a->bytes = b->bytes;
    b->address = address;
    b->address_class = address_class;
    b->bytes = bytes;
}

status *storage_resize(storage *s, int64_t bytes) {
    if (bytes < 0) return status_new(STATUS_RUNTIME, "a storage cannot have %lld bytes", (long long)bytes);
    if (bytes == s->bytes) return NULL;
    storage *fresh = storage_create(bytes, s->device);
    if (!fresh) return status_no_memory();
    status *result = fused_pending(s) ? fused_flush() : NULL;
    if (!result && s->base && bytes > 0 && s->bytes > 0) {
        dtype unit = resize_unit(s, bytes);
        core_tensor from, to;
        from.storage = s;
        to.storage = fresh;
        flat_geometry(&from.geometry, unit, s->bytes / (int64_t)dtype_bytes(unit));
        flat_geometry(&to.geometry, unit, bytes / (int64_t)dtype_bytes(unit));
        result = run_row(&row_resize, &from, &to);
    }
    if (!result && fused_pending(fresh)) result = fused_flush();
    if (!result) {
        exec_acquire();
        swap_storage(s, fresh);
        exec_release();
    }
    storage_destroy(fresh);
    return result;
}

/* ---- host copies ---- */

static bool covers_storage(const storage *s, const geometry *g) {
    return g->offset == 0 && !g->conj && !g->neg && geometry_is_contiguous(g) &&
           geometry_count(g) * (int64_t)dtype_bytes(g->dtype) == s->bytes;
}

static status *upload(storage *s, const geometry *g, const void *data) {
    pjrt_client *client;
    STATUS_TRY(runtime_client(&client));
    base_type t;
    base_type_init(&t, g->dtype, g->rank, g->sizes);
    pjrt_buffer *b;
    STATUS_TRY(storage_name_holders(pjrt_buffer_from_host(client, s->device, data, t.dtype, t.rank, t.dims, &b)));
    exec_acquire();
    storage_settle(s);
    storage_set_base(s, b, &t);
    s->raw = t.dtype == DTYPE_U8 && t.rank == 1;
    exec_release();
    return NULL;
}

status *storage_write_host(storage *s, const geometry *g, const void *data) {
    if (geometry_count(g) == 0) return NULL;
    if (covers_storage(s, g)) return upload(s, g, data);
    core_tensor staged, target = {.storage = s};
    geometry_contiguous(&staged.geometry, g->dtype, g->rank, g->sizes);
    staged.storage = storage_create(geometry_count(g) * (int64_t)dtype_bytes(g->dtype), s->device);
    if (!staged.storage) return status_no_memory();
    geometry_copy(&target.geometry, g);
    status *result = upload(staged.storage, &staged.geometry, data);
    if (!result) {
        staged.storage->raw = false;
        result = run_row(&row_assign, &staged, &target);
    }
    storage_destroy(staged.storage);
    return result;
}

static status *check_indices(storage *s) {
    exec_acquire();
    uint64_t last = s->indices;
    exec_release();
    return indices_check(s->device, last);
}

static status *download(storage *s, void *data, size_t size) {
    pjrt_buffer *b;
    STATUS_TRY(take_base(s, &b));
    if (!b) {
        memset(data, 0, size);
        return NULL;
    }
    status *result = pjrt_buffer_to_host(b, data, size);
    pjrt_buffer_release(b);
    return result ? storage_name_holders(result) : check_indices(s);
}

status *storage_read_host(storage *s, const geometry *g, void *data) {
    int64_t count = geometry_count(g);
    if (count == 0) return NULL;
    size_t size = (size_t)count * dtype_bytes(g->dtype);
    if (covers_storage(s, g) && (!storage_has_value(s) || base_type_bytes(&s->type) == s->bytes))
        return download(s, data, size);
    core_tensor staged, source = {.storage = s};
    geometry_contiguous(&staged.geometry, g->dtype, g->rank, g->sizes);
    staged.storage = storage_create((int64_t)size, s->device);
    if (!staged.storage) return status_no_memory();
    geometry_copy(&source.geometry, g);
    status *result = run_row(&row_assign, &source, &staged);
    if (!result) result = download(staged.storage, data, size);
    storage_destroy(staged.storage);
    return result;
}

status *storage_wait(storage *s) {
    pjrt_buffer *b;
    STATUS_TRY(take_base(s, &b));
    if (!b) return NULL;
    status *result = pjrt_buffer_wait(b);
    pjrt_buffer_release(b);
    return result ? storage_name_holders(result) : check_indices(s);
}
