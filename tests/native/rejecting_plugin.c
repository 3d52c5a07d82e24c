/* A PJRT plugin that stands before another (REJECTED_PLUGIN in the environment) and cannot compile programs whose text
 * has every word of REJECTED_WORDS in it. */
#define _GNU_SOURCE /* memmem */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt_c_api.h"

static const PJRT_Api *real;
static PJRT_Api api;
static char rejection; /* its address is the error */

static int has_all_words(const PJRT_Program *program) {
    const char *word = getenv("REJECTED_WORDS");
    while (word && *word) {
        size_t length = strcspn(word, " ");
        if (!memmem(program->code, program->code_size, word, length)) return 0;
        word += length + (word[length] == ' ');
    }
    return word != NULL;
}

static PJRT_Error *compile(PJRT_Client_Compile_Args *args) {
    return has_all_words(args->program) ? (PJRT_Error *)&rejection : real->PJRT_Client_Compile(args);
}

static void destroy(PJRT_Error_Destroy_Args *args) {
    if (args->error != (PJRT_Error *)&rejection) real->PJRT_Error_Destroy(args);
}

static void message(PJRT_Error_Message_Args *args) {
    static const char text[] = "this plugin compiles no such program";
    if (args->error != (const PJRT_Error *)&rejection) {
        real->PJRT_Error_Message(args);
        return;
    }
    args->message = text;
    args->message_size = sizeof text - 1;
}

static PJRT_Error *code(PJRT_Error_GetCode_Args *args) {
    if (args->error != (const PJRT_Error *)&rejection) return real->PJRT_Error_GetCode(args);
    args->code = PJRT_Error_Code_INTERNAL;
    return NULL;
}

const PJRT_Api *GetPjrtApi(void) {
    const char *path = getenv("REJECTED_PLUGIN");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    const PJRT_Api *(*get)(void) = library ? (const PJRT_Api *(*)(void))dlsym(library, "GetPjrtApi") : NULL;
    if (!get) return NULL;
    real = get();
    memcpy(&api, real, real->struct_size < sizeof api ? real->struct_size : sizeof api);
    api.struct_size = real->struct_size < sizeof api ? real->struct_size : sizeof api;
    api.PJRT_Client_Compile = compile;
    api.PJRT_Error_Destroy = destroy;
    api.PJRT_Error_Message = message;
    api.PJRT_Error_GetCode = code;
    return &api;
}
