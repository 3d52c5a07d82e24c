/* Loops in the program: a counter and a few arrays that every step replaces. */
#ifndef OPS_LOOP_H
#define OPS_LOOP_H

#include "hlo/hlo.h"

#define LOOP_MAX_VALUES 6

/* Replaces the values of `state` by those after one more step; types stay. step: i32 scalar, from 0. Values from
 * outside the loop may be used. */
typedef void (*loop_body)(hlo_builder *b, const void *context, hlo_value step, hlo_value *state);
/* `steps`: i32 scalar. */
void loop_steps(hlo_builder *b, hlo_value steps, int n, hlo_value *state, loop_body body, const void *context);
/* The same until the boolean scalar state[done] is true. */
void loop_until(hlo_builder *b, hlo_value steps, int n, hlo_value *state, int done, loop_body body,
                const void *context);

#endif
