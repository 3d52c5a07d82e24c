/* Host memory that a plugin for CPUs takes over as a device array's. A plugin's own allocation of large arrays is new
 * pages each time, which the system makes as they are first written, at a tenth of the speed of a copy; here they are
 * large ones where there are such, and used again. */
#define _GNU_SOURCE /* MADV_HUGEPAGE */
#include <pthread.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "pjrt/internal.h"

#define PAGE ((size_t)2 << 20)
#define MOST_BYTES_KEPT ((size_t)1 << 30)
enum { MOST_KEPT = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    void *memory;
    size_t size;
} kept[MOST_KEPT];
static int n_kept;
static size_t kept_bytes;

/* Memory that was given back, for the block; false: none of about its size. */
static bool find_kept(host_block *b) {
    pthread_mutex_lock(&lock);
    int i = n_kept - 1;
    while (i >= 0 && (kept[i].size < b->size || kept[i].size > b->size + b->size / 4)) i--;
    if (i >= 0) {
        b->memory = kept[i].memory;
        b->size = kept[i].size;
        kept_bytes -= b->size;
        kept[i] = kept[--n_kept];
    }
    pthread_mutex_unlock(&lock);
    return i >= 0;
}

host_block *host_block_take(size_t bytes) {
    host_block *b = mem_alloc(sizeof *b);
    if (!b) return NULL;
    b->size = (bytes + PAGE - 1) / PAGE * PAGE;
    if (find_kept(b)) return b;
    b->memory = mmap(NULL, b->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->memory == MAP_FAILED) {
        mem_free(b);
        return NULL;
    }
    madvise(b->memory, b->size, MADV_HUGEPAGE);
    return b;
}

void host_block_give(host_block *b) {
    pthread_mutex_lock(&lock);
    bool keep = n_kept < MOST_KEPT && kept_bytes + b->size <= MOST_BYTES_KEPT;
    if (keep) {
        kept[n_kept].memory = b->memory;
        kept[n_kept++].size = b->size;
        kept_bytes += b->size;
    }
    pthread_mutex_unlock(&lock);
    if (!keep) munmap(b->memory, b->size);
    mem_free(b);
}
