/* SPDX-License-Identifier: Apache-2.0 */
/* A temporary folder of a test, and small template folders for the kernel build tests. */
#ifndef GLM_TESTS_FOLDER_H
#define GLM_TESTS_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

/* A new folder under $TMPDIR or /tmp; the text is freed by folder_remove. */
char *folder_new(void);
/* Removes the folder and all below it. NULL is allowed. */
void folder_remove(char *folder);
/* Writes folder/file, failing the test when it cannot. */
void folder_write(const char *folder, const char *file, const char *text);
/* Whole folder/file, NUL-terminated, to be freed; NULL when absent. */
char *folder_read(const char *folder, const char *file, size_t *len);
/* Path of folder/file in one of four static buffers. */
const char *folder_path(const char *folder, const char *file);

#endif
