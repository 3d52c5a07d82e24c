/* Exported programs: the folders that torch.tpu.export writes (docs/export.md describes them), read and run.
 *
 *     artefact *a;                      what is in the folder
 *     artefact_open(folder, &a);
 *     session *s;                       a program of it, compiled, with its state on a device
 *     session_create(a, 0, client, device, &s);
 *     session_run(s, inputs, seed, outputs);
 */
#ifndef RUN_ARTEFACT_H
#define RUN_ARTEFACT_H

#include "pjrt/pjrt.h"
#include "run/array.h"

typedef struct artefact artefact;
typedef struct session session;

typedef enum { ROLE_INPUT, ROLE_STATE, ROLE_OUTPUT, ROLE_RANDOM } artefact_role;

/* A parameter or a result of a program. ROLE_INPUT as a result: the new value of an input that the program writes to.
 */
typedef struct artefact_value {
    artefact_role role;
    const char *name; /* "" for ROLE_RANDOM */
    dtype dtype;
    int rank;
    int64_t dims[ARRAY_MAX_RANK];
} artefact_value;

typedef struct artefact_program {
    const char *file;
    int n_parameters, n_results;
    const artefact_value *parameters, *results;
} artefact_program;

/* Reads and checks the manifest, and the weights against it. An error names the file and what is wrong in it. */
status *artefact_open(const char *folder, artefact **out);
void artefact_close(artefact *a); /* NULL is fine */
int artefact_program_count(const artefact *a);
const artefact_program *artefact_program_at(const artefact *a, int i);
/* Of "torch_tpu", "torch" or "stablehlo"; "unknown" where the manifest does not say. */
const char *artefact_version(const artefact *a, const char *of);

/* Compiles a program (or finds it in the cache on disk) and puts its state on the device. The artefact must outlive
 * the session. */
status *session_create(const artefact *a, int program, int device, session **out);
void session_destroy(session *s); /* NULL is fine */
/* One call. inputs: a buffer for each ROLE_INPUT parameter, in order, borrowed. outputs: a new reference for each
 * result that is not state, in order. State that the program writes is what the next call reads. seed: of the random
 * numbers; each call draws others. */
status *session_run(session *s, pjrt_buffer *const *inputs, uint64_t seed, pjrt_buffer **outputs);
/* The value of a state now, on the device (borrowed); NULL: the program has none of this name. */
pjrt_buffer *session_state(const session *s, const char *name);

#endif
