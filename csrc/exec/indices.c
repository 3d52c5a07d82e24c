/* What programs say of their indices: XLA takes an index that is out of range for the nearest one, or drops it. A
 * program with such operators has a number as its last result, 0 or the code of an operator. The numbers are kept here
 * until the host waits for the device for another reason; then the first bad one is the error. */
#include "base/environment.h"
#include "exec/internal.h"
#include "ops/fault.h"

typedef struct seen {
    pjrt_buffer *code;
    int device;
    uint64_t serial;
} seen;

/* So many wait at most; then they are read. */
#define MOST 256
#define MAX_DEVICES 64

/* Under the lock. */
static seen waiting[MOST];
static int n_waiting;
static uint64_t last_serial;
static int32_t found[MAX_DEVICES]; /* read already, not yet told */

bool indices_are_checked(void) {
    static _Atomic int answer = -1;
    if (answer < 0) answer = environment_flag("TORCH_TPU_INDEX_CHECKS", true);
    return answer;
}

static int32_t *found_on(int device) { return &found[device >= 0 && device < MAX_DEVICES ? device : 0]; }

uint64_t indices_serial(void) { return last_serial; }

/* Takes what waits for a device, or for any (-1), up to a serial number. Under the lock. */
static int take(int device, uint64_t last, seen *out) {
    int n = 0, kept = 0;
    for (int i = 0; i < n_waiting; i++) {
        if ((device < 0 || waiting[i].device == device) && waiting[i].serial <= last)
            out[n++] = waiting[i];
        else
            waiting[kept++] = waiting[i];
    }
    n_waiting = kept;
    return n;
}

/* A program that failed says nothing here: its results are that error. */
static int32_t read_code(pjrt_buffer *b) {
    int32_t code = 0;
    status *s = pjrt_buffer_to_host(b, &code, sizeof code);
    if (s) code = 0;
    status_free(s);
    return code;
}

static void read_all(int device, uint64_t last) {
    seen taken[MOST];
    exec_acquire();
    int n = take(device, last, taken);
    exec_release();
    if (n == 0) return;
    int32_t first[MOST];
    for (int i = 0; i < n; i++) {
        first[i] = read_code(taken[i].code);
        pjrt_buffer_release(taken[i].code);
    }
    exec_acquire();
    for (int i = 0; i < n; i++)
        if (first[i] && !*found_on(taken[i].device)) *found_on(taken[i].device) = first[i];
    exec_release();
}

void indices_add(int device, pjrt_buffer *code) {
    for (bool full = true; full;) {
        exec_acquire();
        full = n_waiting == MOST;
        if (!full) waiting[n_waiting++] = (seen){code, device, ++last_serial};
        uint64_t older = last_serial - MOST / 2;
        exec_release();
        if (full) read_all(-1, older);
    }
}

status *indices_check(int device, uint64_t last) {
    read_all(device, last);
    exec_acquire();
    int32_t code = *found_on(device);
    *found_on(device) = 0;
    exec_release();
    return code ? fault_status(code) : NULL;
}
