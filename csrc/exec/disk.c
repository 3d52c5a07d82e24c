/* Compiled programs on disk: a directory of the user's, then optionally one that many hosts share.
 *
 * An entry is named by a 128-bit digest over the program's text, the compile options and the plugin's identity. It is a
 * header and the plugin's serialised executable: reading one runs nothing of ours. It is written to a temporary name
 * and renamed, so a reader sees all of it or none; whatever does not check out (magic, identity, length, digest of the
 * contents) is ignored and written again. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/environment.h"
#include "exec/internal.h"

#define MAGIC "TPUXLA01"

typedef struct header {
    char magic[8];
    uint64_t name[2];     /* the entry's digest, in case a file was renamed */
    uint64_t identity[2]; /* a second digest of the same bytes with another beginning */
    uint64_t size;
    uint64_t contents[2]; /* digest of what follows */
} header;

/* ---- where ---- */

/* false: that cache is off. */
bool disk_local_directory(strbuf *out) {
    const char *named = getenv("TORCH_TPU_CACHE_DIR");
    if (named) {
        strbuf_puts(out, named);
        return *named != 0;
    }
    const char *cache = environment_text("XDG_CACHE_HOME"), *home = environment_text("HOME");
    if (cache)
        strbuf_printf(out, "%s/torch_tpu", cache);
    else if (home)
        strbuf_printf(out, "%s/.cache/torch_tpu", home);
    else
        return false;
    return true;
}

static bool shared_directory(strbuf *out) {
    const char *root = environment_text("TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT");
    if (!root) return false;
    strbuf_puts(out, root);
    return true;
}

void disk_make_directories(const char *path) {
    char *copy = mem_strdup(path);
    if (!copy) return;
    for (char *p = copy + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        mkdir(copy, 0700);
        *p = '/';
    }
    mkdir(copy, 0700);
    mem_free(copy);
}

/* ---- identity ---- */

/* The CPU plugin's executables are machine code for the features of the CPU that compiled them. */
static void put_cpu_features(strbuf *out) {
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f) return;
    char line[8192];
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, "flags", 5) != 0 && strncmp(line, "Features", 8) != 0) continue;
        strbuf_puts(out, line);
        break;
    }
    fclose(f);
}

void disk_put_identity(strbuf *out, const char *plugin, const char *platform, const char *version, const char *kind) {
    struct stat st = {0};
    if (stat(plugin, &st) != 0) st.st_size = 0;
    const char *name = strrchr(plugin, '/');
    strbuf_printf(out, "%s %lld %s %s %s\n", name ? name : plugin, (long long)st.st_size, platform, version, kind);
    if (strcmp(platform, "cpu") == 0) put_cpu_features(out);
}

static void put_plugin(strbuf *out) {
    pjrt_client *client;
    status *s = runtime_client(&client);
    if (s) {
        status_free(s);
        return;
    }
    strbuf path;
    strbuf_init(&path);
    status_free(runtime_choose_plugin(&path));
    disk_put_identity(out, strbuf_text(&path), pjrt_client_platform(client), pjrt_client_platform_version(client),
                      pjrt_device_kind(client, 0));
    strbuf_free(&path);
}

static pthread_once_t identity_once = PTHREAD_ONCE_INIT;
static strbuf plugin_identity;
static void find_identity(void) { put_plugin(&plugin_identity); }

static bool digests(const strbuf *identity, const char *mlir, size_t size, const strbuf *options, header *h) {
    strbuf all;
    strbuf_init(&all);
    strbuf_puts(&all, "torch_tpu program ");
    strbuf_append(&all, identity->data, identity->size);
    strbuf_append(&all, options->data, options->size);
    strbuf_append(&all, mlir, size);
    bool ok = !strbuf_failed(&all) && !strbuf_failed(identity) && identity->size > 0;
    if (ok) {
        hash_bytes128(all.data, all.size, h->name);
        all.data[0] = 'T';
        hash_bytes128(all.data, all.size, h->identity);
    }
    strbuf_free(&all);
    return ok;
}

static bool entry_digests(const char *mlir, size_t size, const strbuf *options, header *h) {
    pthread_once(&identity_once, find_identity);
    return digests(&plugin_identity, mlir, size, options, h);
}

static void entry_path(const char *directory, const header *h, strbuf *out) {
    strbuf_printf(out, "%s/%016" PRIx64 "%016" PRIx64 ".xla", directory, h->name[0], h->name[1]);
}

/* ---- reading ---- */

static bool read_all(int fd, void *data, size_t size) {
    for (char *p = data; size;) {
        ssize_t n = read(fd, p, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        size -= (size_t)n;
    }
    return true;
}

static bool read_entry(int fd, const header *wanted, strbuf *out) {
    struct stat st;
    header h;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (size_t)st.st_size < sizeof h || !read_all(fd, &h, sizeof h))
        return false;
    bool same = memcmp(h.magic, MAGIC, 8) == 0 && memcmp(h.name, wanted->name, 16) == 0 &&
                memcmp(h.identity, wanted->identity, 16) == 0;
    if (!same || h.size != (uint64_t)st.st_size - sizeof h) return false;
    char *data = mem_alloc((size_t)h.size + 1);
    if (!data) return false;
    uint64_t digest[2];
    bool good = read_all(fd, data, (size_t)h.size);
    if (good) {
        hash_bytes128(data, (size_t)h.size, digest);
        good = memcmp(digest, h.contents, 16) == 0;
    }
    if (good) strbuf_append(out, data, (size_t)h.size);
    mem_free(data);
    return good && !strbuf_failed(out);
}

static bool find_in(const char *directory, const header *wanted, strbuf *out) {
    strbuf path;
    strbuf_init(&path);
    entry_path(directory, wanted, &path);
    int fd = open(strbuf_text(&path), O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe there must not hold us */
    bool found = fd >= 0 && read_entry(fd, wanted, out);
    if (found) futimens(fd, NULL); /* used now: the oldest use goes first */
    if (fd >= 0) close(fd);
    strbuf_free(&path);
    return found;
}

/* ---- the size limit ---- */

typedef struct old_entry {
    int64_t used, size;
    char name[64];
} old_entry;

static int older(const void *a, const void *b) {
    int64_t x = ((const old_entry *)a)->used, y = ((const old_entry *)b)->used;
    return x < y ? -1 : x > y;
}

static int64_t size_limit(void) {
    const int64_t megabyte = 1000000;
    int64_t n = environment_count("TORCH_TPU_CACHE_SIZE_MB", 4096);
    return n < INT64_MAX / megabyte ? n * megabyte : INT64_MAX;
}

static void remove_oldest(const char *directory) {
    DIR *d = opendir(directory);
    if (!d) return;
    old_entry *list = NULL;
    size_t n = 0, capacity = 0;
    int64_t total = 0;
    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        size_t length = strlen(e->d_name);
        if (length < 5 || length >= sizeof list->name || strcmp(e->d_name + length - 4, ".xla") != 0) continue;
        if (fstatat(dirfd(d), e->d_name, &st, 0) != 0) continue;
        if (n == capacity) {
            size_t wanted = capacity ? 2 * capacity : 256;
            old_entry *grown = mem_realloc(list, wanted * sizeof *grown);
            if (!grown) break;
            list = grown;
            capacity = wanted;
        }
        list[n].used = (int64_t)st.st_mtime;
        list[n].size = (int64_t)st.st_size;
        memcpy(list[n++].name, e->d_name, length + 1);
        total += (int64_t)st.st_size;
    }
    int64_t limit = size_limit();
    if (total > limit) {
        qsort(list, n, sizeof *list, older);
        /* A tenth below the limit, so that not every write has to clear up. */
        for (size_t i = 0; i < n && total > limit / 10 * 9; i++)
            if (unlinkat(dirfd(d), list[i].name, 0) == 0) total -= list[i].size;
    }
    closedir(d);
    mem_free(list);
}

/* ---- writing ---- */

static bool write_all(int fd, const void *data, size_t size) {
    for (const char *p = data; size;) {
        ssize_t n = write(fd, p, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        size -= (size_t)n;
    }
    return true;
}

/* A cache that cannot be written (full, read-only) costs a compile next time and nothing else. */
static void store_in(const char *directory, const header *h, const strbuf *contents) {
    static _Atomic unsigned serial;
    disk_make_directories(directory);
    strbuf path, temporary;
    strbuf_init(&path);
    strbuf_init(&temporary);
    entry_path(directory, h, &path);
    strbuf_printf(&temporary, "%s.%ld.%u.tmp", strbuf_text(&path), (long)getpid(), serial++);
    int fd = open(strbuf_text(&temporary), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
        bool good = write_all(fd, h, sizeof *h) && write_all(fd, contents->data, contents->size);
        good = close(fd) == 0 && good;
        if (!good || rename(strbuf_text(&temporary), strbuf_text(&path)) != 0) unlink(strbuf_text(&temporary));
    }
    strbuf_free(&path);
    strbuf_free(&temporary);
    if (serial % 256 == 1) remove_oldest(directory);
}

/* ---- the two caches ---- */

bool disk_find(const char *mlir, size_t size, const strbuf *options, strbuf *out) {
    header h;
    strbuf local, shared;
    strbuf_init(&local);
    strbuf_init(&shared);
    bool on_local = disk_local_directory(&local), on_shared = shared_directory(&shared), found = false;
    if ((on_local || on_shared) && entry_digests(mlir, size, options, &h)) {
        found = on_local && find_in(strbuf_text(&local), &h, out);
        if (!found) strbuf_clear(out);
        if (!found && on_shared) found = find_in(strbuf_text(&shared), &h, out);
    }
    strbuf_free(&local);
    strbuf_free(&shared);
    return found;
}

/* Into both caches, as far as they are on. false: into neither. */
static bool store(header *h, const strbuf *contents, strbuf *path) {
    strbuf local, shared;
    strbuf_init(&local);
    strbuf_init(&shared);
    bool on_local = disk_local_directory(&local), on_shared = shared_directory(&shared);
    h->size = contents->size;
    hash_bytes128(contents->data, contents->size, h->contents);
    if (on_local) store_in(strbuf_text(&local), h, contents);
    if (on_shared) store_in(strbuf_text(&shared), h, contents);
    if (path && (on_local || on_shared)) entry_path(strbuf_text(on_local ? &local : &shared), h, path);
    strbuf_free(&local);
    strbuf_free(&shared);
    return on_local || on_shared;
}

void disk_store(const char *mlir, size_t size, const strbuf *options, pjrt_executable *executable) {
    header h = {.magic = MAGIC};
    strbuf directory, contents;
    strbuf_init(&directory);
    strbuf_init(&contents);
    bool on = disk_local_directory(&directory) || shared_directory(&directory);
    if (on && entry_digests(mlir, size, options, &h)) {
        status *s = pjrt_executable_serialize(executable, &contents);
        if (!s && !strbuf_failed(&contents) && contents.size > 0) store(&h, &contents, NULL);
        status_free(s); /* a plugin that cannot serialise has no disk cache */
    }
    strbuf_free(&directory);
    strbuf_free(&contents);
}

bool disk_store_bytes(const strbuf *identity, const char *mlir, size_t size, const strbuf *options,
                      const strbuf *contents, strbuf *path) {
    header h = {.magic = MAGIC};
    return digests(identity, mlir, size, options, &h) && store(&h, contents, path);
}
