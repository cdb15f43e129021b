/* SPDX-License-Identifier: Apache-2.0 */
/* One handler and two flags; no other code of glmctl installs handlers. */
#include "cli/signals.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t deferred, pending;

static void on_signal(int number)
{
    if (!deferred)
        _exit(128 + number);
    pending = number;
}

void signals_init(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_signal};
    struct sigaction old;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL); /* what nohup ignores stays ignored */
    signal(SIGPIPE, SIG_IGN);
}

void signals_defer(void)
{
    deferred = 1;
}

bool signals_pending(void)
{
    return pending != 0;
}

enum glm_status signals_check(const char *doing, struct glm_error *err)
{
    if (pending == 0)
        return GLM_OK;
    return glm_fail(err, GLM_ECANCELED, "interrupted by %s while %s",
                    pending == SIGINT    ? "SIGINT"
                    : pending == SIGTERM ? "SIGTERM"
                                         : "SIGHUP",
                    doing);
}

int signals_exit_status(void)
{
    return 128 + (int)pending;
}
