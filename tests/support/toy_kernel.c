/* SPDX-License-Identifier: Apache-2.0 */
/* The toy template folder and a plan of three kernels, of which two are equal but for their names.
 */
#include "tests/support/toy_kernel.h"

#include "codegen/kernels.h"
#include "tests/support/folder.h"

#include <stdlib.h>

static const char manifest[] =
    "{\"name\":\"scale\",\"help\":\"y = FACTOR * x\",\n"
    " \"args\":[{\"name\":\"x\",\"dtype\":\"f32\",\"direction\":\"in\",\"shape\":\"N\"},\n"
    "          {\"name\":\"y\",\"dtype\":\"f32\",\"direction\":\"out\",\"shape\":\"N\"}],\n"
    " \"params\":[{\"name\":\"N\",\"type\":\"int\",\"values\":\"1..4096\",\"help\":\"elements\"},\n"
    "            {\"name\":\"FACTOR\",\"type\":\"float\",\"values\":\"\",\"help\":\"the "
    "factor\"},\n"
    "            "
    "{\"name\":\"FORM\",\"type\":\"word\",\"values\":\"plain|twice\",\"help\":\"how\"}],\n"
    " \"scratch\":\"0\",\"read\":\"4*N\",\"write\":\"4*N\",\"ops\":\"N*(1+is(FORM,twice))\",\n"
    " \"reduction\":\"none\",\"oracle\":\"itself\",\"tolerance\":0,\"spill_limit_bytes\":0}\n";

static const char working_body[] = "#include \"prelude.h\"\n"
                                   "void glm_kernel(const void *launch, void *const *args)\n"
                                   "{\n"
                                   "    const float *x = args[0];\n"
                                   "    float *y = args[1];\n"
                                   "    (void)launch;\n"
                                   "    for (int i = 0; i < GLM_N; i++)\n"
                                   "        y[i] = TWICE * GLM_FACTOR * x[i];\n"
                                   "}\n";

static const char prelude[] = "#include \"deeper.h\"\n"
                              "#if GLM_FORM_twice\n"
                              "#define TWICE (2.0f * ONE)\n"
                              "#else\n"
                              "#define TWICE ONE\n"
                              "#endif\n";

void toy_init(struct toy *t, const char *body)
{
    static struct glm_plan_param params[3][3] = {
        {{.name = "N", .value = 64, .origin = "model.d_hidden"},
         {.name = "FACTOR", .text = "3", .origin = "model.norm_eps"},
         {.name = "FORM", .text = "plain", .origin = ""}},
        {{.name = "N", .value = 64, .origin = "model.d_hidden"},
         {.name = "FACTOR", .text = "0.5", .origin = "model.norm_eps"},
         {.name = "FORM", .text = "twice", .origin = ""}},
        {{.name = "FORM", .text = "plain", .origin = ""},
         {.name = "FACTOR", .text = "3", .origin = "model.norm_eps"},
         {.name = "N", .value = 64, .origin = "model.d_hidden"}},
    };
    static struct glm_plan_kernel kernels[3] = {
        {.name = "three", .template_name = "scale", .params = params[0], .n_params = 3},
        {.name = "half.twice", .template_name = "scale", .params = params[1], .n_params = 3},
        {.name = "three.again", .template_name = "scale", .params = params[2], .n_params = 3},
    };
    t->templates = folder_new();
    t->cache = folder_new();
    folder_write(t->templates, "scale.json", manifest);
    folder_write(t->templates, "scale.c", body == NULL ? working_body : body);
    folder_write(t->templates, "prelude.h", prelude);
    folder_write(t->templates, "deeper.h", "#define ONE 1.0f\n");
    setenv("GLM_TEMPLATES", t->templates, 1);
    setenv("GLM_CACHE_DIR", t->cache, 1);
    t->plan = (struct glm_plan){
        .target = glm_host_target(), .act = "f32", .kernels = kernels, .n_kernels = 3};
}

void toy_release(struct toy *t)
{
    folder_remove(t->templates);
    folder_remove(t->cache);
    unsetenv("GLM_TEMPLATES");
    unsetenv("GLM_CACHE_DIR");
}
