/* Loading PJRT plugins. A plugin stays loaded for the life of the process: it has threads and thread-local data that
 * outlive any use of ours. Loading takes no lock; a thread that wants what another is loading waits for that one. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "pjrt/internal.h"

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t registry_changed = PTHREAD_COND_INITIALIZER;
static pjrt_plugin *registry;

static status *check_file(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0) return status_new(STATUS_NOT_FOUND, "PJRT plugin %s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return status_new(STATUS_NOT_FOUND, "PJRT plugin %s: not a file", path);
    return NULL;
}

/* libtpu asks the cloud's metadata server who it is, and waits long for it where there is none. */
static void spare_libtpu_the_server(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!strstr(slash ? slash : path, "tpu") || pjrt_tpu_attached()) return;
    setenv("TPU_SKIP_MDS_QUERY", "1", 0);
    setenv("TPU_WORKER_HOSTNAMES", "localhost", 0);
}

static status *check_version(const char *path, const PJRT_Api *api) {
    if (!api) return status_new(STATUS_RUNTIME, "PJRT plugin %s: GetPjrtApi gives nothing", path);
    /* The version has been at this place since PJRT 0.30, so it can be read from a table of any age. */
    if (api->struct_size < offsetof(PJRT_Api, PJRT_Error_Destroy))
        return status_new(STATUS_RUNTIME, "PJRT plugin %s: its function table is only %zu bytes", path,
                          api->struct_size);
    const PJRT_Api_Version *version = &api->pjrt_api_version;
    if (version->major_version != PJRT_API_MAJOR)
        return status_new(STATUS_RUNTIME, "PJRT plugin %s: speaks PJRT %d.%d, and this build speaks %d.%d", path,
                          version->major_version, version->minor_version, PJRT_API_MAJOR, PJRT_API_MINOR);
    return NULL;
}

static status *load(const char *path, const PJRT_Api **out) {
    spare_libtpu_the_server(path);
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        return status_new(STATUS_RUNTIME, "PJRT plugin %s cannot be loaded as a shared library: %s", path,
                          reason ? reason : "?");
    }
    void *symbol = dlsym(library, "GetPjrtApi");
    if (!symbol) {
        dlclose(library);
        return status_new(STATUS_RUNTIME, "%s is a shared library but no PJRT plugin: it has no function GetPjrtApi",
                          path);
    }
    const PJRT_Api *(*get_api)(void);
    memcpy(&get_api, &symbol, sizeof get_api); /* ISO C has no cast from object to function pointers */
    const PJRT_Api *api = get_api();
    STATUS_TRY(check_version(path, api));
    if (PJRT_HAS(api, PJRT_Plugin_Initialize)) { /* older plugins have none and need none */
        PJRT_Plugin_Initialize_Args args = PJRT_ARGS(PJRT_Plugin_Initialize, );
        STATUS_TRY(status_prefix(PJRT_CALL(api, PJRT_Plugin_Initialize, &args), "PJRT plugin %s", path));
    }
    *out = api;
    return NULL;
}

/* With the lock held: the entry of a path, or NULL. */
static pjrt_plugin *find(const char *path) {
    pjrt_plugin *p = registry;
    while (p && strcmp(p->path, path) != 0) p = p->next;
    return p;
}

/* The entry of a path that is loaded, or a new one for the caller to load (its api is NULL), or NULL with no memory. */
static pjrt_plugin *claim(const char *path) {
    pthread_mutex_lock(&registry_lock);
    pjrt_plugin *p;
    while ((p = find(path)) && !p->api) pthread_cond_wait(&registry_changed, &registry_lock);
    if (!p && (p = mem_alloc(sizeof *p))) {
        p->path = mem_strdup(path);
        if (p->path) {
            p->next = registry;
            registry = p;
        } else {
            mem_free(p);
            p = NULL;
        }
    }
    pthread_mutex_unlock(&registry_lock);
    return p;
}

/* Ends the loading of a claimed entry: with an api it is ready, with NULL it is forgotten, and those who wait try
 * themselves. */
static void settle(pjrt_plugin *p, const PJRT_Api *api) {
    pthread_mutex_lock(&registry_lock);
    p->api = api;
    if (!api) {
        pjrt_plugin **link = &registry;
        while (*link != p) link = &(*link)->next;
        *link = p->next;
        mem_free(p->path);
        mem_free(p);
    }
    pthread_cond_broadcast(&registry_changed);
    pthread_mutex_unlock(&registry_lock);
}

status *pjrt_plugin_load(const char *path, pjrt_plugin **out) {
    *out = NULL;
    char resolved[PATH_MAX];
    STATUS_TRY(check_file(path));
    if (!realpath(path, resolved)) return status_new(STATUS_NOT_FOUND, "PJRT plugin %s: %s", path, strerror(errno));
    pjrt_plugin *p = claim(resolved);
    if (!p) return status_no_memory();
    if (!p->api) {
        const PJRT_Api *api = NULL;
        status *failure = load(resolved, &api);
        settle(p, api);
        if (failure) return failure;
    }
    *out = p;
    return NULL;
}

const char *pjrt_plugin_path(const pjrt_plugin *p) { return p->path; }

void pjrt_plugin_version(const pjrt_plugin *p, int *major, int *minor) {
    *major = p->api->pjrt_api_version.major_version;
    *minor = p->api->pjrt_api_version.minor_version;
}
