/* A PJRT plugin that stands before another (REFUSED_PLUGIN in the environment) and, while refuse(1) holds, has no
 * memory for uploads and results. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt_c_api.h"

static const PJRT_Api *real;
static PJRT_Api api;
static atomic_int refusing;
static char refusal; /* its address is the error */

void refuse(int on) { atomic_store(&refusing, on); }

static PJRT_Error *refuse_or(PJRT_Error *(*call)(void *), void *args) {
    return atomic_load(&refusing) ? (PJRT_Error *)&refusal : call(args);
}

static PJRT_Error *upload(PJRT_Client_BufferFromHostBuffer_Args *args) {
    return refuse_or((PJRT_Error * (*)(void *)) real->PJRT_Client_BufferFromHostBuffer, args);
}

static PJRT_Error *execute(PJRT_LoadedExecutable_Execute_Args *args) {
    return refuse_or((PJRT_Error * (*)(void *)) real->PJRT_LoadedExecutable_Execute, args);
}

static void destroy(PJRT_Error_Destroy_Args *args) {
    if (args->error != (PJRT_Error *)&refusal) real->PJRT_Error_Destroy(args);
}

static void message(PJRT_Error_Message_Args *args) {
    static const char text[] = "RESOURCE_EXHAUSTED: Out of memory";
    if (args->error != (const PJRT_Error *)&refusal) {
        real->PJRT_Error_Message(args);
        return;
    }
    args->message = text;
    args->message_size = sizeof text - 1;
}

static PJRT_Error *code(PJRT_Error_GetCode_Args *args) {
    if (args->error != (const PJRT_Error *)&refusal) return real->PJRT_Error_GetCode(args);
    args->code = PJRT_Error_Code_RESOURCE_EXHAUSTED;
    return NULL;
}

const PJRT_Api *GetPjrtApi(void) {
    const char *path = getenv("REFUSED_PLUGIN");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    const PJRT_Api *(*get)(void) = library ? (const PJRT_Api *(*)(void))dlsym(library, "GetPjrtApi") : NULL;
    if (!get) return NULL;
    real = get();
    memcpy(&api, real, real->struct_size < sizeof api ? real->struct_size : sizeof api);
    api.struct_size = real->struct_size < sizeof api ? real->struct_size : sizeof api;
    api.PJRT_Client_BufferFromHostBuffer = upload;
    api.PJRT_LoadedExecutable_Execute = execute;
    api.PJRT_Error_Destroy = destroy;
    api.PJRT_Error_Message = message;
    api.PJRT_Error_GetCode = code;
    return &api;
}
