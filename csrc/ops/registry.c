/* The operator tables, in one list. */
#include "ops/ops.h"

#include <string.h>

#include "base/hashmap.h"

