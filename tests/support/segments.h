/* SPDX-License-Identifier: Apache-2.0 */
/* The shared-memory segments of links that have a name: what a dead rank must not leave behind. */
#ifndef GLM_TESTS_SUPPORT_SEGMENTS_H
#define GLM_TESTS_SUPPORT_SEGMENTS_H

/* Of the whole machine: tests that run beside this one have theirs, each until its peers mapped it.
 */
int segments_count(void);
/* Waits until there are no more than `before`; fails the test when some stay. */
void assert_no_more_segments(int before);

#endif
