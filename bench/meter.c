/* A PJRT plugin that hands everything to another one, METER_PLUGIN, and counts: for measuring any implementation on the
 * same plugin. Options of the client, which a plugin for CPUs may not know, are left out.
 *
 *     gcc -O2 -shared -fPIC -I<directory of pjrt_c_api.h> meter.c -o meter.so -ldl
 *
 * METER_DIRECTORY: programs are written there as they are compiled, numbered from 0. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pjrt_c_api.h"

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_ZERO_STATS (void)0
#define CALLGRIND_DUMP_STATS_AT(name) (void)(name)
#endif

enum { MOST = 65536 };

static PJRT_Api ours;
static const PJRT_Api *real;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t n_programs, n_launches, execute_ns;
static struct {
    const void *executable;
    int64_t program, launches;
} loaded[MOST]; /* open addressing by pointer */

static size_t place_of(const void *executable) {
    size_t i = ((uintptr_t)executable >> 4) * 0x9E3779B97F4A7C15u % MOST;
    while (loaded[i].executable && loaded[i].executable != executable) i = (i + 1) % MOST;
    return i;
}

static void note_program(const void *executable, const char *code, size_t size) {
    const char *directory = getenv("METER_DIRECTORY");
    pthread_mutex_lock(&lock);
    int64_t number = n_programs++;
    if (number < MOST / 2) {
        size_t i = place_of(executable);
        loaded[i].executable = executable;
        loaded[i].program = number;
    }
    pthread_mutex_unlock(&lock);
    if (!directory || !code) return;
    char path[4096];
    snprintf(path, sizeof path, "%s/%lld.mlir", directory, (long long)number);
    FILE *f = fopen(path, "wb");
    if (!f) return;
    fwrite(code, 1, size, f);
    fclose(f);
}

static PJRT_Error *create(PJRT_Client_Create_Args *args) {
    args->create_options = NULL;
    args->num_options = 0;
    return real->PJRT_Client_Create(args);
}

static PJRT_Error *compile(PJRT_Client_Compile_Args *args) {
    PJRT_Error *error = real->PJRT_Client_Compile(args);
    if (!error) note_program(args->executable, args->program->code, args->program->code_size);
    return error;
}

static PJRT_Error *load(PJRT_Executable_DeserializeAndLoad_Args *args) {
    PJRT_Error *error = real->PJRT_Executable_DeserializeAndLoad(args);
    if (!error) note_program(args->loaded_executable, NULL, 0);
    return error;
}

static PJRT_Error *execute(PJRT_LoadedExecutable_Execute_Args *args) {
    pthread_mutex_lock(&lock);
    n_launches++;
    loaded[place_of(args->executable)].launches++;
    pthread_mutex_unlock(&lock);
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    PJRT_Error *error = real->PJRT_LoadedExecutable_Execute(args);
    clock_gettime(CLOCK_MONOTONIC, &after);
    int64_t took = (after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec;
    __atomic_fetch_add(&execute_ns, took, __ATOMIC_RELAXED);
    return error;
}

const PJRT_Api *GetPjrtApi(void) {
    if (real) return &ours;
    const char *path = getenv("METER_PLUGIN");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        fprintf(stderr, "meter: METER_PLUGIN=%s: %s\n", path ? path : "", path ? dlerror() : "not set");
        exit(1);
    }
    const PJRT_Api *(*get)(void) = (const PJRT_Api *(*)(void))dlsym(library, "GetPjrtApi");
    real = get();
    memcpy(&ours, real, real->struct_size < sizeof ours ? real->struct_size : sizeof ours);
    ours.PJRT_Client_Create = create;
    ours.PJRT_Client_Compile = compile;
    ours.PJRT_Executable_DeserializeAndLoad = load;
    ours.PJRT_LoadedExecutable_Execute = execute;
    return &ours;
}

/* ---- for the measuring process, through ctypes ---- */

/* Callgrind's counts; elsewhere nothing. */
void meter_instructions_zero(void) { CALLGRIND_ZERO_STATS; }
void meter_instructions_write(const char *name) { CALLGRIND_DUMP_STATS_AT(name); }

int64_t meter_programs(void) { return n_programs; }
int64_t meter_launches(void) { return n_launches; }
int64_t meter_execute_ns(void) { return execute_ns; } /* inside the plugin's own execute calls, so far */

/* Launches of each program since the last call, as "number count" lines, into a file; counts begin anew. */
void meter_write(const char *path) {
    pthread_mutex_lock(&lock);
    FILE *f = path && *path ? fopen(path, "w") : NULL;
    for (size_t i = 0; i < MOST; i++) {
        if (f && loaded[i].launches)
            fprintf(f, "%lld %lld\n", (long long)loaded[i].program, (long long)loaded[i].launches);
        loaded[i].launches = 0;
    }
    if (f) fclose(f);
    pthread_mutex_unlock(&lock);
}
