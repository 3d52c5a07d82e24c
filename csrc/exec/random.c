/* From a generator's (seed, offset) to the state of one operator. */
#include "exec/internal.h"

/* The finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014). */
static uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t random_word(uint64_t seed, uint64_t offset) {
    return mix(mix(seed + 0x9e3779b97f4a7c15u) + offset * 0x9e3779b97f4a7c15u);
}
