/* Hash functions and the map, held against a plain array. */
#include "base/hashmap.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "check.h"

/* ---- hashing ---- */

static int bits_of(uint64_t x) { return __builtin_popcountll(x); }

/* Each bit of the input changes about half of the output's, at every length and alignment. */
static void test_avalanche(void) {
    unsigned char storage[80];
    for (int size = 1; size <= 64; size++) {
        unsigned char *data = storage + size % 8;
        for (int i = 0; i < size; i++) data[i] = (unsigned char)(i * 37 + size);
        uint64_t h = hash_bytes(data, (size_t)size), wide[2], changed[2];
        hash_bytes128(data, (size_t)size, wide);
        long flips = 0, wide_flips[2] = {0, 0};
        for (int bit = 0; bit < size * 8; bit++) {
            data[bit / 8] ^= (unsigned char)(1 << bit % 8);
            int distance = bits_of(h ^ hash_bytes(data, (size_t)size));
            CHECK(distance > 8); /* fewer by chance: 1 in 10^10 */
            flips += distance;
            hash_bytes128(data, (size_t)size, changed);
            for (int k = 0; k < 2; k++) wide_flips[k] += bits_of(wide[k] ^ changed[k]);
            data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
        long bits = 8L * size * 64;
        CHECK(flips > bits * 4 / 10 && flips < bits * 6 / 10);
        for (int k = 0; k < 2; k++) CHECK(wide_flips[k] > bits * 4 / 10 && wide_flips[k] < bits * 6 / 10);
    }
}

static int compare_words(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Small structured keys, as ours are, do not collide; nor do strings of zeros that differ in length only. */
static void test_collisions(void) {
    enum { COUNT = 200000 };
    uint64_t *hashes = malloc(COUNT * sizeof *hashes);
    int64_t key[4] = {0};
    for (int i = 0; i < COUNT; i++) {
        key[0] = i % 100;
        key[2] = i / 100;
        hashes[i] = hash_bytes(key, sizeof key);
    }
    qsort(hashes, COUNT, sizeof *hashes, compare_words);
    for (int i = 1; i < COUNT; i++) CHECK(hashes[i] != hashes[i - 1]);
    static const unsigned char zeros[2000];
    for (int i = 0; i < 2000; i++) hashes[i] = hash_bytes(zeros, (size_t)i);
    qsort(hashes, 2000, sizeof *hashes, compare_words);
    for (int i = 1; i < 2000; i++) CHECK(hashes[i] != hashes[i - 1]);
    for (int i = 0; i < 2000; i++) {
        uint64_t wide[2];
        hash_bytes128(zeros, (size_t)i, wide);
        hashes[i] = wide[1];
    }
    qsort(hashes, 2000, sizeof *hashes, compare_words);
    for (int i = 1; i < 2000; i++) CHECK(hashes[i] != hashes[i - 1]);
    free(hashes);
}

static void test_alignment(void) {
    char text[64] = "the same bytes at another address give the same hash, whatever", moved[80];
    for (size_t shift = 0; shift < 16; shift++) {
        uint64_t a[2], b[2];
        memcpy(moved + shift, text, sizeof text);
        CHECK(hash_bytes(text, 63) == hash_bytes(moved + shift, 63));
        hash_bytes128(text, 63, a);
        hash_bytes128(moved + shift, 63, b);
        CHECK(a[0] == b[0] && a[1] == b[1]);
    }
    CHECK(hash_bytes(NULL, 0) == hash_bytes(text, 0));
}

/* ---- the map ---- */

static bool sum_values(const void *key, size_t size, void *value, void *context) {
    CHECK_INT(size, sizeof(int));
    CHECK_INT(*(const int *)key + 1, (intptr_t)value);
    *(long *)context += (intptr_t)value;
    return true;
}

static bool stop_at_first(const void *key, size_t size, void *value, void *context) {
    (void)key, (void)size, (void)value;
    ++*(int *)context;
    return false;
}

static bool is_odd(void *value, void *gone) {
    bool odd = (intptr_t)value & 1;
    *(long *)gone += odd ? 0 : (intptr_t)value;
    return odd;
}

/* Random inserts and removals; `spread` 1 makes every key collide, so that probing and shifting are all that works. */
static void test_against_array(uint64_t spread) {
    enum { KEYS = 300 };
    intptr_t expected[KEYS] = {0};
    size_t count = 0;
    uint32_t random = 12345;
    hashmap *m = hashmap_create();
    for (int step = 0; step < 20000; step++) {
        random = random * 1664525 + 1013904223;
        int key = (int)(random >> 8) % KEYS;
        uint64_t hash = hash_bytes(&key, sizeof key) % spread;
        if (random >> 31) {
            CHECK_INT((intptr_t)hashmap_remove(m, &key, sizeof key, hash), expected[key]);
            count -= expected[key] != 0;
            expected[key] = 0;
        } else {
            CHECK(hashmap_insert(m, &key, sizeof key, hash, (void *)(intptr_t)(key + 1)));
            count += expected[key] == 0;
            expected[key] = key + 1;
        }
        CHECK_INT(hashmap_count(m), count);
        int other = (key * 7 + step) % KEYS;
        CHECK_INT((intptr_t)hashmap_find(m, &other, sizeof other, hash_bytes(&other, sizeof other) % spread),
                  expected[other]);
    }
    long sum = 0, visited = 0;
    for (int i = 0; i < KEYS; i++) sum += expected[i];
    hashmap_visit(m, sum_values, &visited);
    CHECK_INT(visited, sum);
    int calls = 0;
    hashmap_visit(m, stop_at_first, &calls);
    CHECK_INT(calls, 1);
    long even = 0, gone = 0;
    for (int i = 0; i < KEYS; i++) even += expected[i] & 1 ? 0 : expected[i];
    hashmap_keep(m, is_odd, &gone);
    CHECK_INT(gone, even); /* each goes once */
    for (int i = 0; i < KEYS; i++)
        CHECK_INT((intptr_t)hashmap_find(m, &i, sizeof i, hash_bytes(&i, sizeof i) % spread),
                  expected[i] & 1 ? expected[i] : 0);
    hashmap_destroy(m);
}

static void test_keys(void) {
    hashmap *m = hashmap_create();
    char key[] = "ab";
    int one, two, three;
    CHECK(hashmap_insert(m, key, 2, 5, &one));
    CHECK(hashmap_insert(m, key, 1, 5, &two)); /* a prefix with the same hash is another key */
    CHECK(hashmap_insert(m, NULL, 0, 5, &three));
    key[0] = 'x'; /* keys are copied */
    CHECK(hashmap_find(m, "ab", 2, 5) == &one);
    CHECK(hashmap_find(m, "a", 1, 5) == &two);
    CHECK(hashmap_find(m, "", 0, 5) == &three);
    CHECK(hashmap_find(m, "ac", 2, 5) == NULL);
    CHECK(hashmap_insert(m, "ab", 2, 5, &two));
    CHECK(hashmap_find(m, "ab", 2, 5) == &two);
    CHECK_INT(hashmap_count(m), 3);
    CHECK(hashmap_remove(m, "zz", 2, 5) == NULL);
    hashmap_destroy(m);
    hashmap_destroy(NULL);
}

/* An insert that fails at any allocation, also while growing, leaves the map as it was. */
static void test_no_memory(void) {
    for (long n = 1; n <= 2; n++) {
        mem_fail_after(n);
        CHECK(hashmap_create() == NULL);
    }
    mem_fail_after(0);
    hashmap *m = hashmap_create();
    for (int key = 0; key < 100; key++) {
        uint64_t hash = hash_bytes(&key, sizeof key);
        for (long n = 1;; n++) {
            mem_fail_after(n);
            bool inserted = hashmap_insert(m, &key, sizeof key, hash, m);
            mem_fail_after(0);
            if (inserted) break;
            CHECK_INT(hashmap_count(m), key);
            CHECK(hashmap_find(m, &key, sizeof key, hash) == NULL);
        }
        for (int k = 0; k <= key; k++) CHECK(hashmap_find(m, &k, sizeof k, hash_bytes(&k, sizeof k)) == m);
    }
    hashmap_destroy(m);
}

int main(void) {
    long before = mem_live_count();
    test_avalanche();
    test_collisions();
    test_alignment();
    test_keys();
    test_against_array(1);
    test_against_array(10);
    test_against_array(UINT64_MAX);
    test_no_memory();
    CHECK_INT(mem_live_count(), before);
    return check_report();
}
