/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to a lane's HTTP API, for the smoke test and `bench`. */
#ifndef GLM_CLI_HTTP_CLIENT_H
#define GLM_CLI_HTTP_CLIENT_H

#include "spec/base/buf.h"

/* POST (body not NULL) or GET; the answer's body into *answer, its status into *http_status.
 * key_file: an API key file whose first key is sent, "" for none.
 * on_data (may be NULL) sees each piece as it arrives.
 * Errors: GLM_EIO with the transport's reason. */
typedef void (*http_on_data)(void *context, const char *bytes, size_t len);
enum glm_status http_request(const char *url, const char *key_file, const char *body,
                             uint32_t timeout_s, struct buf *answer, long *http_status,
                             http_on_data on_data, void *context, struct glm_error *err);

#endif
