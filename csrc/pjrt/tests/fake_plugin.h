/* A PJRT plugin whose programs copy their first input to every result, plus one where the program's text says "add".
 * Tests make its calls fail, look at what it was given, and count what it still holds. Launches and what they need may
 * come from several threads. */
#ifndef PJRT_TESTS_FAKE_PLUGIN_H
#define PJRT_TESTS_FAKE_PLUGIN_H

#include <stdatomic.h>
#include <stdbool.h>

#include <pjrt_c_api.h>

enum { FAKE_MAX_DEVICES = 4, FAKE_MAX_LIST = 256 };

typedef struct {
    PJRT_Api *api; /* its table, to be changed at will once loaded */

    /* what it is to do */
    long fail_call; /* 1: the next call fails, once; 0: none */
    PJRT_Error_Code fail_code;
    bool computation_fails; /* programs launch well, and their results turn out to be errors */
    atomic_bool holds;      /* launches by other threads than the one that reset the plugin do not return */
    atomic_bool no_memory;  /* for launches */
    atomic_bool rejects;    /* launches */
    int n_devices, n_results;
    bool on_cpu, column_major; /* where arrays lie, and how */
    bool impossible_results;   /* programs tell a negative dimension of their results */
    float optimal_seconds;

    /* what it saw */
    const char *failed_function; /* the last to fail on demand */
    long calls, initialized, live_objects, in_place_holds, host_copies;
    size_t n_options;
    char option_text[64]; /* "name=value " of each client option */
    char compile_options[512];
    size_t compile_options_size;
    int64_t fixed[FAKE_MAX_LIST]; /* the last launch's non-donatable inputs */
    size_t n_fixed, n_arguments;
    int launched_on; /* -1: no device was named */
    int64_t host_layout[8];
    size_t host_layout_size;
} fake_plugin;

/* The symbol of this type tells the state, which fake_plugin_reset puts back to its beginning, freeing what was leaked.
 */
typedef fake_plugin *fake_plugin_state_function(void);
typedef void fake_plugin_reset_function(void);

#endif
