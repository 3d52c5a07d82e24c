/* Launches in the background: the plugin's execute call takes microseconds, and while a thread of ours makes it the
 * caller issues what follows. Launches go through a ring in the order in which they were issued. Whoever needs a result
 * that is still in the ring runs what stands before it, so that nothing waits for a thread to wake.
 *
 * A position in the ring only grows; that of a launch's end is its ticket, and what is below `head` has been launched.
 * A buffer knows the tickets of the launch that makes it and of the last one that reads it. */
#define _GNU_SOURCE /* CPU_COUNT, pthread_setname_np */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/environment.h"
#include "pjrt/internal.h"

enum {
    WORDS = 1 << 15,      /* of the ring */
    MOST_WORDS = 1 << 12, /* of a launch */
    BURST = 4,            /* so many launches with short gaps wake the thread */
    PAUSES = 500,         /* before one who waits for another's launch sleeps */
};
#define LARGE_RESULTS ((int64_t)1 << 20) /* bytes from which a launch is made at once: lack of memory shows there */
#define MOST_BYTES ((int64_t)64 << 20)   /* of all results in the ring */
#define SHORT_NS 30000 /* a gap between launches; as long the thread looks for more before it sleeps */

typedef struct {
    pjrt_executable *executable; /* NULL: the ring goes on at its start */
    PJRT_Device *device;
    pjrt_buffer *dead; /* buffers whose last reader stands before this launch */
    int n_inputs, n_results;
} record; /* then a word for each input, its address and 1 where it is donated, and the results' addresses */

enum { RECORD_WORDS = sizeof(record) / sizeof(uint64_t) };
_Static_assert(sizeof(record) % sizeof(uint64_t) == 0, "records consist of words");

typedef enum { UNKNOWN, POSSIBLE, RUNNING, OFF, FORKED } queue_state;

static uint64_t ring[WORDS];
static _Atomic int state; /* queue_state; changes under push_lock */
static pthread_t thread;

/* Who adds. */
static pthread_mutex_t push_lock = PTHREAD_MUTEX_INITIALIZER;
static alignas(64) _Atomic uint64_t tail;
static int64_t pushed_bytes; /* under push_lock, as the next */
static pjrt_buffer *dead;    /* no one has them, and a launch in the ring reads them */
static _Atomic int64_t last_launch_ns;
static _Atomic int burst;

/* Who launches. */
static pthread_mutex_t run_lock = PTHREAD_MUTEX_INITIALIZER;
static alignas(64) _Atomic uint64_t head;
static _Atomic int64_t run_bytes;
static _Atomic int waiting;  /* threads that want run_lock more than ours does */
static _Atomic bool stalled; /* no memory for the first launch: it is tried again when someone needs it */

/* The thread's sleep. */
static pthread_mutex_t sleep_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t woken = PTHREAD_COND_INITIALIZER;
static alignas(64) _Atomic bool asleep = true;

static void wait_a_little(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    sched_yield();
#endif
}

bool pjrt_queue_passed(uint64_t ticket) { return atomic_load_explicit(&head, memory_order_acquire) >= ticket; }

static bool anything_left(void) { return !pjrt_queue_passed(atomic_load(&tail)); }

static void wake(void) {
    pthread_mutex_lock(&sleep_lock);
    atomic_store(&asleep, false);
    pthread_cond_signal(&woken);
    pthread_mutex_unlock(&sleep_lock);
}

/* ---- launching; under run_lock ---- */

static void destroy_all(pjrt_buffer *b) {
    while (b) {
        pjrt_buffer *next = b->next_dead;
        pjrt_buffer_destroy(b);
        b = next;
    }
}

static pjrt_buffer *input_of(const record *r, int i) {
    return (pjrt_buffer *)(((const uint64_t *)(r + 1))[i] & ~(uint64_t)1);
}
static bool donated(const record *r, int i) { return ((const uint64_t *)(r + 1))[i] & 1; }
static pjrt_buffer **results_of(record *r) { return (pjrt_buffer **)((uint64_t *)(r + 1) + r->n_inputs); }

static status *launch(record *r) {
    launch_arrays a;
    if (!launch_arrays_init(&a, r->n_inputs, r->n_results)) return status_no_memory();
    status *s = NULL;
    size_t n_fixed = 0;
    for (int i = 0; i < r->n_inputs && !s; i++) {
        const pjrt_buffer *b = input_of(r, i);
        if (b->error) s = pjrt_buffer_error(b);
        a.inputs[i] = b->buffer;
        if (!donated(r, i)) a.fixed[n_fixed++] = i;
    }
    if (!s) s = pjrt_launch(r->executable, r->device, r->n_inputs, n_fixed, &a);
    for (int i = 0; i < r->n_results && !s; i++) results_of(r)[i]->buffer = a.results[i];
    launch_arrays_free(&a);
    return s;
}

/* Someone has a result, or will read it. */
static bool is_wanted(record *r) {
    pjrt_buffer **results = results_of(r);
    for (int i = 0; i < r->n_results; i++)
        if (atomic_load_explicit(&results[i]->references, memory_order_acquire) || results[i]->used) return true;
    return false;
}

/* A launch that failed for another reason than memory: its results are the error. */
static void fail(record *r, status *s) {
    for (int i = 0; i < r->n_results; i++)
        results_of(r)[i]->error = status_new(status_get_code(s), "%s", status_message(s));
    status_free(s);
}

/* The first launch of the ring, if any. An error is lack of memory: the launch is still in the ring. */
static status *run_next(void) {
    uint64_t at = atomic_load_explicit(&head, memory_order_relaxed);
    if (at == atomic_load_explicit(&tail, memory_order_acquire)) return NULL;
    if (atomic_load_explicit(&state, memory_order_relaxed) == FORKED)
        return status_new(STATUS_RUNTIME, "this value was still being computed when the process was forked");
    record *r = (record *)&ring[at % WORDS];
    if (!r->executable) {
        at += WORDS - at % WORDS;
        r = (record *)ring;
    }
    destroy_all(r->dead);
    r->dead = NULL;
    status *s = launch(r);
    if (s && status_get_code(s) == STATUS_OUT_OF_MEMORY && is_wanted(r)) {
        atomic_store(&stalled, true);
        return status_prefix(s, "an operator that was issued earlier");
    }
    if (s) fail(r, s);
    int64_t bytes = r->executable->result_bytes;
    at += RECORD_WORDS + (uint64_t)r->n_inputs + (uint64_t)r->n_results;
    atomic_store_explicit(&run_bytes, atomic_load_explicit(&run_bytes, memory_order_relaxed) + bytes,
                          memory_order_relaxed);
    atomic_store_explicit(&head, at, memory_order_release);
    if (atomic_load_explicit(&stalled, memory_order_relaxed)) {
        atomic_store(&stalled, false);
        wake();
    }
    return NULL;
}

status *pjrt_queue_reach(uint64_t ticket) {
    status *s = NULL;
    for (int turn = 0; !s && !pjrt_queue_passed(ticket); turn++) {
        bool mine = pthread_mutex_trylock(&run_lock) == 0;
        if (!mine && turn < PAUSES) {
            wait_a_little();
            continue;
        }
        if (!mine) {
            atomic_fetch_add(&waiting, 1);
            pthread_mutex_lock(&run_lock);
            atomic_fetch_sub(&waiting, 1);
        }
        if (!pjrt_queue_passed(ticket)) s = run_next();
        pthread_mutex_unlock(&run_lock);
    }
    return s;
}

/* ---- the thread ---- */

/* With an empty ring nothing reads the dead any more. On return no other thread is destroying any, either. */
static void bury(void) {
    pthread_mutex_lock(&push_lock);
    pthread_mutex_lock(&run_lock);
    pjrt_buffer *list = anything_left() ? NULL : dead;
    if (list) dead = NULL;
    pthread_mutex_unlock(&push_lock);
    destroy_all(list);
    pthread_mutex_unlock(&run_lock);
}

void pjrt_queue_drop(pjrt_buffer *b) {
    pthread_mutex_lock(&push_lock);
    b->next_dead = dead;
    dead = b;
    pthread_mutex_unlock(&push_lock);
    if (!anything_left()) bury();
}

static bool idle(void) {
    return atomic_load_explicit(&state, memory_order_relaxed) == RUNNING && (!anything_left() || atomic_load(&stalled));
}

static void sleep_until_woken(void) {
    bury();
    pthread_mutex_lock(&sleep_lock);
    atomic_store(&asleep, true);
    if (idle())
        while (atomic_load(&asleep)) pthread_cond_wait(&woken, &sleep_lock);
    atomic_store(&asleep, false);
    pthread_mutex_unlock(&sleep_lock);
}

static void look_for_more(void) {
    int64_t start = pjrt_clock_ns();
    for (int turn = 1; idle(); turn++) {
        wait_a_little();
        if (turn % 32 == 0 && pjrt_clock_ns() - start > SHORT_NS) {
            sleep_until_woken();
            return;
        }
    }
}

static void *work(void *nothing) {
    while (atomic_load_explicit(&state, memory_order_relaxed) == RUNNING) {
        if (idle()) {
            look_for_more();
        } else if (atomic_load_explicit(&waiting, memory_order_relaxed)) {
            sched_yield();
        } else {
            pthread_mutex_lock(&run_lock);
            status_free(run_next()); /* who needs the value tries again, and gets the error */
            pthread_mutex_unlock(&run_lock);
        }
    }
    return nothing;
}

static void end_thread(void) {
    pthread_mutex_lock(&push_lock);
    bool running = atomic_load(&state) == RUNNING;
    if (running) atomic_store(&state, OFF);
    pthread_mutex_unlock(&push_lock);
    if (!running) return;
    wake();
    pthread_join(thread, NULL);
    status_free(pjrt_queue_finish());
}

static void before_fork(void) {
    status_free(pjrt_queue_finish());
    pthread_mutex_lock(&push_lock);
    pthread_mutex_lock(&run_lock);
    pthread_mutex_lock(&sleep_lock);
}

static void after_fork(void) {
    pthread_mutex_unlock(&sleep_lock);
    pthread_mutex_unlock(&run_lock);
    pthread_mutex_unlock(&push_lock);
}

static void after_fork_in_child(void) {
    atomic_store(&state, FORKED); /* the thread is not in the child */
    after_fork();
}

/* Signals are for the program's own threads. Under push_lock. */
static bool start_thread(void) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    atomic_store(&state, RUNNING);
    atomic_store(&asleep, false);
    bool started = pthread_create(&thread, NULL, work, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started) pthread_setname_np(thread, "tpu-launches");
    if (!started) {
        atomic_store(&state, OFF);
        return false;
    }
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
    atexit(end_thread); /* before the plugin's own ends: it was loaded earlier */
    return true;
}

static bool is_possible(void) {
    cpu_set_t mine;
    return environment_flag("TORCH_TPU_LAUNCH_THREAD", true) && sched_getaffinity(0, sizeof mine, &mine) == 0 &&
           CPU_COUNT(&mine) > 1;
}

/* ---- adding ---- */

/* Waking the thread costs more than a launch: it is worth it where many follow each other. */
static bool in_a_burst(void) {
    int64_t now = pjrt_clock_ns(), before = atomic_exchange_explicit(&last_launch_ns, now, memory_order_relaxed);
    int n = now - before < SHORT_NS ? atomic_load_explicit(&burst, memory_order_relaxed) + 1 : 0;
    atomic_store_explicit(&burst, n, memory_order_relaxed);
    return n >= BURST;
}

static bool thread_is_awake(void) {
    int now = atomic_load_explicit(&state, memory_order_relaxed);
    if (now >= OFF) return false;
    if (now == RUNNING && !atomic_load_explicit(&asleep, memory_order_relaxed)) return true;
    if (!in_a_burst()) return false;
    pthread_mutex_lock(&push_lock);
    if (atomic_load(&state) == UNKNOWN) atomic_store(&state, is_possible() ? POSSIBLE : OFF);
    bool awake = atomic_load(&state) == RUNNING || (atomic_load(&state) == POSSIBLE && start_thread());
    pthread_mutex_unlock(&push_lock);
    return awake;
}

/* Where a launch of `words` words goes, once there is room for it and its results; push_lock is held. */
static status *make_room(uint64_t words, int64_t bytes, uint64_t *out) {
    uint64_t last = atomic_load_explicit(&tail, memory_order_relaxed), left = WORDS - last % WORDS;
    *out = left < words ? last + left : last;
    for (;;) {
        uint64_t first = atomic_load_explicit(&head, memory_order_acquire);
        if (*out + words <= first + WORDS &&
            pushed_bytes + bytes - atomic_load_explicit(&run_bytes, memory_order_relaxed) <= MOST_BYTES)
            break;
        STATUS_TRY(pjrt_queue_reach(first + 1));
    }
    if (left < words) ((record *)&ring[last % WORDS])->executable = NULL;
    return NULL;
}

static void write_record(uint64_t at, uint64_t end, pjrt_executable *e, PJRT_Device *device, int n_inputs,
                         pjrt_buffer *const *inputs, const bool *donate, pjrt_buffer **outputs) {
    record *r = (record *)&ring[at % WORDS];
    *r = (record){e, device, dead, n_inputs, e->n_results};
    dead = NULL;
    uint64_t *word = (uint64_t *)(r + 1);
    for (int i = 0; i < n_inputs; i++) {
        inputs[i]->used = end;
        *word++ = (uint64_t)inputs[i] | (donate && donate[i]);
    }
    for (int i = 0; i < e->n_results; i++) {
        outputs[i]->made = end;
        *word++ = (uint64_t)outputs[i];
    }
    e->used = end;
}

status *pjrt_execute_soon(pjrt_executable *e, int device, int n_inputs, pjrt_buffer *const *inputs, const bool *donate,
                          pjrt_buffer **outputs) {
    uint64_t words = RECORD_WORDS + (uint64_t)n_inputs + (uint64_t)e->n_results, at;
    if (atomic_load_explicit(&stalled, memory_order_relaxed)) STATUS_TRY(pjrt_queue_reach(atomic_load(&tail)));
    if (e->result_bytes > LARGE_RESULTS || words > MOST_WORDS || !thread_is_awake())
        return pjrt_execute(e, device, n_inputs, inputs, donate, outputs);
    PJRT_Device *target = NULL;
    STATUS_TRY(pjrt_client_device(e->client, device, &target));
    STATUS_TRY(pjrt_results_create(e, outputs));
    pthread_mutex_lock(&push_lock);
    status *s = make_room(words, e->result_bytes, &at);
    if (!s) {
        write_record(at, at + words, e, target, n_inputs, inputs, donate, outputs);
        pushed_bytes += e->result_bytes;
        atomic_store(&tail, at + words);
    }
    pthread_mutex_unlock(&push_lock);
    if (s) {
        pjrt_results_release(e, outputs);
        return s;
    }
    pjrt_launched(e, n_inputs, inputs, donate, outputs);
    if (atomic_load(&asleep)) wake();
    return NULL;
}

status *pjrt_queue_finish(void) {
    status *s = pjrt_queue_reach(atomic_load(&tail));
    bury();
    return s;
}
