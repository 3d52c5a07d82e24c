/* Every heap allocation of the core goes through here, so that tests can make any of them fail. */
#ifndef BASE_ALLOC_H
#define BASE_ALLOC_H

#include <stddef.h>

void *mem_alloc(size_t size); /* zeroed; NULL with no memory */
void *mem_realloc(void *p, size_t size);
char *mem_strdup(const char *text);
void mem_free(void *p);

/* For tests: the n-th allocation from now (1 = the next) on this thread fails, and those after it succeed. 0: none
 * fails. */
void mem_fail_after(long n);
long mem_live_count(void); /* allocations not yet freed, all threads */

#endif
