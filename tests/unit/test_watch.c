/* SPDX-License-Identifier: Apache-2.0 */
/* Who looks after the ranks while a stream waits for them: a set that was aborted, what the caller
 * asks besides, results that are wanted no more. */
#include "runtime/watch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct stream {
    atomic_uint n_given_up;
    atomic_bool is_wrong;
    struct glm_collective *collective;
    struct glm_watch *watch;
    struct glm_error err;
};

static void give_up(void *context)
{
    atomic_fetch_add(&((struct stream *)context)->n_given_up, 1);
}

static enum glm_status look(void *context, struct glm_error *err)
{
    return atomic_load(&((struct stream *)context)->is_wrong)
               ? glm_fail(err, GLM_EKERNEL, "the wire is wet")
               : GLM_OK;
}

static void open_watch(struct stream *s)
{
    *s = (struct stream){0};
    assert_int_equal(glm_collective_new(0, 1, NULL, 4096, 0, NULL, NULL, &s->collective, &s->err),
                     GLM_OK);
    assert_int_equal(
        glm_watch_new(s->collective,
                      (struct glm_watch_ops){.give_up = give_up, .look = look, .context = s},
                      &s->watch, &s->err),
        GLM_OK);
}

static void close_watch(struct stream *s)
{
    glm_watch_free(s->watch);
    glm_collective_free(s->collective);
}

static void await(struct stream *s, unsigned n)
{
    for (int i = 0; i < 5000 && atomic_load(&s->n_given_up) < n; i++)
        usleep(1000);
    assert_int_equal(atomic_load(&s->n_given_up), n);
}

static void ranks_that_are_there_let_rounds_pass(void **state)
{
    struct stream s;
    (void)state;
    open_watch(&s);
    for (int i = 0; i < 100; i++) {
        glm_watch_note(s.watch, GLM_SUM, 4096);
        glm_watch_begin(s.watch);
        assert_int_equal(glm_watch_end(s.watch, false, &s.err), GLM_OK);
    }
    assert_int_equal(glm_collective_stats(s.collective).n_sum, 100);
    glm_watch_give_up(s.watch); /* nothing waits */
    close_watch(&s);
    assert_int_equal(atomic_load(&s.n_given_up), 0);
}

static void an_aborted_set_is_given_up_once(void **state)
{
    struct stream s;
    (void)state;
    open_watch(&s);
    glm_watch_begin(s.watch);
    glm_collective_abort(s.collective);
    await(&s, 1);
    assert_int_equal(glm_watch_end(s.watch, false, &s.err), GLM_EPEER);
    glm_watch_begin(s.watch);
    assert_int_equal(glm_watch_end(s.watch, true, &s.err), GLM_EPEER);
    close_watch(&s);
    assert_int_equal(atomic_load(&s.n_given_up), 1);
}

static void what_the_caller_finds_wrong_is_its_error(void **state)
{
    struct stream s;
    (void)state;
    open_watch(&s);
    glm_watch_begin(s.watch);
    atomic_store(&s.is_wrong, true);
    await(&s, 1);
    assert_int_equal(glm_watch_end(s.watch, false, &s.err), GLM_EKERNEL);
    assert_string_equal(s.err.message, "the wire is wet");
    close_watch(&s);
}

static void results_that_nobody_wants_are_given_up(void **state)
{
    struct stream s;
    (void)state;
    open_watch(&s);
    glm_watch_begin(s.watch);
    glm_watch_give_up(s.watch);
    await(&s, 1);
    close_watch(&s);
}

/* Found at the end of a stream that failed: free still ends what others may wait for. */
static void a_loss_found_late_is_given_up_when_freed(void **state)
{
    struct stream s;
    (void)state;
    open_watch(&s);
    glm_watch_begin(s.watch);
    atomic_store(&s.is_wrong, true);
    assert_int_equal(glm_watch_end(s.watch, true, &s.err), GLM_EKERNEL);
    close_watch(&s);
    assert_int_equal(atomic_load(&s.n_given_up), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_are_there_let_rounds_pass),
        cmocka_unit_test(an_aborted_set_is_given_up_once),
        cmocka_unit_test(what_the_caller_finds_wrong_is_its_error),
        cmocka_unit_test(results_that_nobody_wants_are_given_up),
        cmocka_unit_test(a_loss_found_late_is_given_up_when_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
