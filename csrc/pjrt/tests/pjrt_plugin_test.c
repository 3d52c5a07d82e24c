/* Loading plugins, good and bad, and finding TPUs. FAKE_PLUGIN is the path of the fake one. */
#define _GNU_SOURCE /* RTLD_DI_LINKMAP, mkdtemp */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/tests/check.h"
#include "fake_plugin.h"
#include "pjrt/internal.h"

static char directory[] = "/tmp/pjrt_plugin_test_XXXXXX";

static const char *in_directory(const char *name) {
    static char path[4][256];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", directory, name);
    return p;
}

static void write_file(const char *name, const char *text) {
    FILE *f = fopen(in_directory(name), "w");
    if (!CHECK(f != NULL)) return;
    fputs(text, f);
    fclose(f);
}

static void test_files_that_are_none(void) {
    pjrt_plugin *p = (pjrt_plugin *)&p;
    CHECK_FAILS(pjrt_plugin_load("/no/such/file.so", &p), STATUS_NOT_FOUND, "/no/such/file.so");
    CHECK(p == NULL);
    CHECK_FAILS(pjrt_plugin_load("", &p), STATUS_NOT_FOUND, "No such file");
    CHECK_FAILS(pjrt_plugin_load(directory, &p), STATUS_NOT_FOUND, "not a file");
    write_file("text.so", "this is no shared library\n");
    CHECK_FAILS(pjrt_plugin_load(in_directory("text.so"), &p), STATUS_RUNTIME, "cannot be loaded as a shared library");
    write_file("empty.so", "");
    CHECK_FAILS(pjrt_plugin_load(in_directory("empty.so"), &p), STATUS_RUNTIME, "cannot be loaded as a shared library");
    CHECK_FAILS(pjrt_plugin_load(in_directory("empty.so"), &p), STATUS_RUNTIME, "cannot be loaded"); /* and again */
}

/* The mathematics library is a shared library, and no plugin. */
static void test_another_library(void) {
    void *library = dlopen("libm.so.6", RTLD_LAZY);
    if (!library) return; /* not this C library */
    struct link_map *map = NULL;
    pjrt_plugin *p;
    CHECK_INT(dlinfo(library, RTLD_DI_LINKMAP, &map), 0);
    if (map) CHECK_FAILS(pjrt_plugin_load(map->l_name, &p), STATUS_RUNTIME, "no function GetPjrtApi");
    dlclose(library);
}

static void test_unusable_plugins(fake_plugin *fake) {
    pjrt_plugin *p;
    setenv("FAKE_PJRT", "null", 1);
    CHECK_FAILS(pjrt_plugin_load(FAKE_PLUGIN, &p), STATUS_RUNTIME, "GetPjrtApi gives nothing");
    setenv("FAKE_PJRT", "major", 1);
    CHECK_FAILS(pjrt_plugin_load(FAKE_PLUGIN, &p), STATUS_RUNTIME, "speaks PJRT 1.7, and this build speaks 0.");
    setenv("FAKE_PJRT", "short", 1);
    CHECK_FAILS(pjrt_plugin_load(FAKE_PLUGIN, &p), STATUS_RUNTIME, "16 bytes");
    unsetenv("FAKE_PJRT");
    fake->fail_call = 1;
    CHECK_FAILS(pjrt_plugin_load(FAKE_PLUGIN, &p), STATUS_RUNTIME, "failed on demand (PJRT_Plugin_Initialize)");
    CHECK_INT(fake->live_objects, 0);
    CHECK_INT(fake->initialized, 0);
}

static void test_no_memory(void) {
    pjrt_plugin *p;
    long before = mem_live_count();
    for (long n = 1; n <= 2; n++) {
        mem_fail_after(n);
        CHECK_FAILS(pjrt_plugin_load(FAKE_PLUGIN, &p), STATUS_OUT_OF_MEMORY, "out of host memory");
    }
    mem_fail_after(0);
    CHECK_INT(mem_live_count(), before);
}

static void *load_fake(void *nothing) {
    (void)nothing;
    pjrt_plugin *p = NULL;
    status_free(pjrt_plugin_load(FAKE_PLUGIN, &p));
    return p;
}

/* Several threads, several names, one plugin, initialised once. */
static void test_loading(fake_plugin *fake) {
    pthread_t threads[8];
    void *plugins[8];
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, load_fake, NULL);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], &plugins[i]);
    for (int i = 0; i < 8; i++) CHECK(plugins[i] != NULL && plugins[i] == plugins[0]);
    pjrt_plugin *p = NULL;
    CHECK_INT(symlink(FAKE_PLUGIN, in_directory("link.so")), 0);
    CHECK_OK(pjrt_plugin_load(in_directory("link.so"), &p));
    CHECK(p == plugins[0]);
    CHECK_INT(fake->initialized, 1);
    int major = -1, minor = -1;
    pjrt_plugin_version(p, &major, &minor);
    CHECK_INT(major, 0);
    CHECK_INT(minor, 7);
    CHECK(strstr(pjrt_plugin_path(p), ".so") != NULL);
    CHECK_INT(pjrt_plugin_path(p)[0], '/');
}

/* Only a library named after TPUs changes the environment, only where there is no TPU, and it respects what is set. */
static void test_environment(void) {
    pjrt_plugin *p;
    unsetenv("TPU_SKIP_MDS_QUERY");
    setenv("TPU_WORKER_HOSTNAMES", "a,b", 1);
    write_file("other.so", "text");
    CHECK_FAILS(pjrt_plugin_load(in_directory("other.so"), &p), STATUS_RUNTIME, "cannot be loaded");
    CHECK(getenv("TPU_SKIP_MDS_QUERY") == NULL);
    write_file("libtpu.so", "text");
    CHECK_FAILS(pjrt_plugin_load(in_directory("libtpu.so"), &p), STATUS_RUNTIME, "cannot be loaded");
    CHECK(pjrt_tpu_attached() == (getenv("TPU_SKIP_MDS_QUERY") == NULL));
    CHECK_TEXT(getenv("TPU_WORKER_HOSTNAMES"), "a,b");
}

static void test_finding_tpus(void) {
    CHECK(!pjrt_tpu_attached_below(in_directory("nowhere")));
    for (const char *const *d =
             (const char *const[]){"m", "m/dev", "m/dev/accel", "m/sys", "m/sys/bus", "m/sys/bus/pci",
                                   "m/sys/bus/pci/devices", "m/sys/bus/pci/devices/0", "m/sys/bus/pci/devices/1", NULL};
         *d; d++)
        CHECK_INT(mkdir(in_directory(*d), 0700), 0);
    char machine[256];
    snprintf(machine, sizeof machine, "%s", in_directory("m"));
    CHECK(!pjrt_tpu_attached_below(machine));
    write_file("m/dev/accel/accel0", ""); /* another maker's accelerator */
    CHECK(!pjrt_tpu_attached_below(machine));
    write_file("m/sys/bus/pci/devices/0/vendor", "0x8086\n");
    write_file("m/sys/bus/pci/devices/0/device", "0x0063\n");
    write_file("m/sys/bus/pci/devices/1/vendor", "0x1ae0\n");
    CHECK(!pjrt_tpu_attached_below(machine));                 /* its device id cannot be read */
    write_file("m/sys/bus/pci/devices/1/device", "0x0042\n"); /* Google's network card */
    CHECK(!pjrt_tpu_attached_below(machine));
    write_file("m/sys/bus/pci/devices/1/device", "0x0063\n"); /* v5e */
    CHECK(pjrt_tpu_attached_below(machine));
    unlink(in_directory("m/sys/bus/pci/devices/1/device"));
    write_file("m/dev/accel0", "");
    CHECK(pjrt_tpu_attached_below(machine));
}

int main(void) {
    if (!CHECK(mkdtemp(directory) != NULL)) return check_report();
    void *library = dlopen(FAKE_PLUGIN, RTLD_LAZY);
    if (!CHECK(library != NULL)) return check_report();
    fake_plugin_state_function *get_state = (fake_plugin_state_function *)dlsym(library, "fake_plugin_state");
    fake_plugin_reset_function *reset = (fake_plugin_reset_function *)dlsym(library, "fake_plugin_reset");
    reset();
    test_files_that_are_none();
    test_another_library();
    test_environment();
    test_unusable_plugins(get_state());
    test_no_memory();
    test_loading(get_state());
    test_finding_tpus();
    char command[300];
    snprintf(command, sizeof command, "rm -r %s", directory);
    CHECK_INT(system(command), 0);
    return check_report();
}
