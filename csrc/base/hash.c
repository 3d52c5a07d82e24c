/* Hashes of byte strings, for tables (64 bits) and for names of cache entries (128 bits). Neither resists an adversary.
 */
#include <string.h>

#include "base/hashmap.h"

static uint64_t read64(const unsigned char *p) {
    uint64_t value;
    memcpy(&value, p, sizeof value); /* any alignment */
    return value;
}

/* The last 1..8 bytes as a number; the length is mixed in elsewhere, so zero padding is unambiguous. */
static uint64_t read_tail(const unsigned char *p, size_t size) {
    uint64_t value = 0;
    memcpy(&value, p, size);
    return value;
}

/* Both halves of the 128-bit product, folded: one multiplication makes every input bit reach the middle of the result
 * (the construction of the wyhash family). */
static uint64_t fold(uint64_t a, uint64_t b) {
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Fractional bits of the square roots of 2, 3, 5 and 7, made odd: arbitrary, with no structure. */
#define K1 UINT64_C(0x6a09e667f3bcc909)
#define K2 UINT64_C(0xbb67ae8584caa73b)
#define K3 UINT64_C(0x3c6ef372fe94f82b)
#define K4 UINT64_C(0xa54ff53a5f1d36f1)

uint64_t hash_bytes(const void *data, size_t size) {
    const unsigned char *p = data;
    size_t left = size;
    uint64_t h = K1 ^ fold(size ^ K2, K3);
    for (; left >= 16; p += 16, left -= 16) h = fold(read64(p) ^ K2, read64(p + 8) ^ h);
    if (left >= 8) {
        h = fold(read64(p) ^ K3, h ^ K4);
        p += 8;
        left -= 8;
    }
    if (left) h = fold(read_tail(p, left) ^ K4, h ^ K2);
    return fold(h ^ K1, K3);
}

static uint64_t rotate(uint64_t x, int n) { return (x << n) | (x >> (64 - n)); }

/* A bijection whose every input bit changes every output bit half the time (the finaliser of MurmurHash3, A. Appleby).
 */
static uint64_t finish(uint64_t x) {
    x = (x ^ (x >> 33)) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ (x >> 33)) * UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ (x >> 33);
}

/* Two lanes that feed each other. Each step is a bijection of the state for a given word, and of the word for a given
 * state, so nothing is lost on the way and strings that differ in one word never collide. */
void hash_bytes128(const void *data, size_t size, uint64_t out[2]) {
    const unsigned char *p = data;
    uint64_t a = K1 ^ size, b = K2 + size;
    for (size_t left = size; left; left -= left < 8 ? left : 8, p += 8) {
        uint64_t word = left >= 8 ? read64(p) : read_tail(p, left);
        a = rotate((a ^ finish(word + K3)) * K2, 29) + b;
        b = rotate((b ^ a) * K4, 37);
    }
    a = finish(a + rotate(b, 17));
    b = finish(b ^ a);
    out[0] = finish(a + b);
    out[1] = finish(b ^ rotate(out[0], 32));
}
