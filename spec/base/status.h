/* SPDX-License-Identifier: Apache-2.0 */
/* The one status enum. The function that first classifies an error records what happened in a
 * struct glm_error (error.h); callers pass status and error on and add no second line. */
#ifndef GLM_BASE_STATUS_H
#define GLM_BASE_STATUS_H

#define GLM_STATUS_MAP(X)                                       \
    X(GLM_OK, "ok")                                             \
    X(GLM_ESPEC, "the cluster spec is not valid")               \
    X(GLM_ECHECKPOINT, "the checkpoint is not valid")           \
    X(GLM_EPLAN, "the plan is not valid")                       \
    X(GLM_ECAPACITY, "it does not fit in memory")               \
    X(GLM_EKERNEL, "a kernel could not be built or loaded")     \
    X(GLM_EFABRIC, "the fabric is not as described")            \
    X(GLM_EPEER, "a rank was lost")                             \
    X(GLM_EIO, "input or output failed")                        \
    X(GLM_EBUSY, "somebody else holds it")                      \
    X(GLM_ESTALE, "it no longer matches what it was made from") \
    X(GLM_EINVAL, "the request is not valid")                   \
    X(GLM_EAGAIN, "not now, try again")                         \
    X(GLM_ECANCELED, "it was cancelled")                        \
    X(GLM_ENOMEM, "out of memory")                              \
    X(GLM_ENOTFOUND, "there is no such thing")

enum glm_status {
#define GLM_STATUS_ENUM(name, text) name,
    GLM_STATUS_MAP(GLM_STATUS_ENUM)
#undef GLM_STATUS_ENUM
};

/* The status's text from the map above; never NULL. */
const char *glm_status_text(enum glm_status status);

#endif
