/* The TPUs that can be compiled for: generations, the slices of them that exist, and what a chip can do. */
#ifndef AOT_TOPOLOGY_H
#define AOT_TOPOLOGY_H

#include <stdint.h>

#include "base/status.h"
#include "base/strbuf.h"

typedef struct aot_generation {
    const char *name;        /* what a topology's name begins with: "v5e" of "v5e:2x2" */
    const char *device_kind; /* what PJRT calls its devices */
    int dimensions;          /* of its interconnect: 2 or 3 */
    int devices_per_chip;    /* as the compiler and the runtime count devices */
    int64_t hbm_bytes;       /* a chip */
    double hbm_bytes_per_s;  /* a chip */
    double bf16_flops;       /* peak a chip, a second */
    double int8_ops;         /* 0: not published */
    double fp8_flops;        /* 0: no faster than bf16, or not published */
    double clock_hz;         /* of a TensorCore */
    int max_chips, max_side; /* of a slice of 4x4x4 cubes; 0: `slices` are all */
    const char *slices;      /* by blanks */
    const char *source;      /* of the figures */
} aot_generation;

typedef struct aot_slice {
    const aot_generation *generation;
    int sides[3]; /* chips; the third is 1 where there are two dimensions */
    int chips, devices;
} aot_slice;

/* "v5e:2x2". ValueError with the names that there are, for one that is not. */
status *aot_slice_find(const char *name, aot_slice *out);
/* All generations and their slices, as JSON. */
void aot_topologies_print(strbuf *out);
int aot_generation_count(void);
const aot_generation *aot_generation_at(int i);

#endif
