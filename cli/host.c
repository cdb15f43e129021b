/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of this machine from /proc, control groups and a trial bind. Judging them is apply.c's. */
#include "cli/host.h"

#include "runtime/net.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool read_number(const char *path, uint64_t *out)
{
    FILE *f = fopen(path, "re");
    unsigned long long value;
    const bool ok = f != NULL && fscanf(f, "%llu", &value) == 1; /* "max" is no number */
    if (f != NULL)
        fclose(f);
    if (ok)
        *out = value;
    return ok;
}

struct host_memory host_memory(void)
{
    struct host_memory m = {0};
    unsigned long long kib;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "MemTotal: %llu kB", &kib) == 1)
            m.total_bytes = kib * 1024;
        else if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            m.available_bytes = kib * 1024;
    }
    if (f != NULL)
        fclose(f);
    uint64_t limit, used;
    if (read_number("/sys/fs/cgroup/memory.max", &limit) &&
        read_number("/sys/fs/cgroup/memory.current", &used)) {
        const uint64_t left = limit > used ? limit - used : 0;
        m.total_bytes = limit < m.total_bytes ? limit : m.total_bytes;
        m.available_bytes = left < m.available_bytes ? left : m.available_bytes;
    }
    return m;
}

/* ---- who listens on a port ---- */

enum { LISTENING = 0x0A };

/* The inode of a socket that listens on the port, 0 when none is seen. */
static unsigned long listening_inode(const char *table, uint16_t port)
{
    char line[512], local[96];
    unsigned state;
    unsigned long inode, found = 0;
    FILE *f = fopen(table, "re");
    while (f != NULL && found == 0 && fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, " %*s %95s %*s %x %*s %*s %*s %*s %*s %lu", local, &state, &inode) != 3)
            continue;
        const char *colon = strrchr(local, ':');
        if (colon != NULL && state == LISTENING && strtoul(colon + 1, NULL, 16) == port)
            found = inode;
    }
    if (f != NULL)
        fclose(f);
    return found;
}

static bool has_socket(const char *pid, unsigned long inode)
{
    char path[300], link[64], wanted[64];
    bool found = false;
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    DIR *dir = opendir(path);
    const struct dirent *e;
    while (dir != NULL && !found && (e = readdir(dir)) != NULL) {
        if (snprintf(path, sizeof path, "/proc/%.20s/fd/%.20s", pid, e->d_name) < 0)
            continue;
        ssize_t n = readlink(path, link, sizeof link - 1);
        link[n < 0 ? 0 : n] = '\0';
        found = strcmp(link, wanted) == 0;
    }
    if (dir != NULL)
        closedir(dir);
    return found;
}

/* " by process 4711 (python3)", "" when it cannot be told (another user's process). */
static void port_holder(uint16_t port, char *text, size_t size)
{
    unsigned long inode = listening_inode("/proc/net/tcp", port);
    if (inode == 0)
        inode = listening_inode("/proc/net/tcp6", port);
    text[0] = '\0';
    DIR *dir = inode == 0 ? NULL : opendir("/proc");
    const struct dirent *e;
    while (dir != NULL && (e = readdir(dir)) != NULL) {
        if (!isdigit((unsigned char)e->d_name[0]) || !has_socket(e->d_name, inode))
            continue;
        char path[64], name[64] = "";
        snprintf(path, sizeof path, "/proc/%.20s/comm", e->d_name);
        FILE *f = fopen(path, "re");
        if (f == NULL || fgets(name, sizeof name, f) == NULL)
            name[0] = '\0';
        if (f != NULL)
            fclose(f);
        name[strcspn(name, "\n")] = '\0';
        snprintf(text, size, " by process %.20s (%s)", e->d_name, name);
        break;
    }
    if (dir != NULL)
        closedir(dir);
}

enum glm_status host_can_listen(const char *host, uint16_t port, struct glm_error *err)
{
    struct glm_error found = {0};
    char text[GLM_NET_TEXT_BYTES], holder[128] = "";
    int fd;
    enum glm_status status = glm_net_listen(host, port, &fd, text, &found);
    if (status == GLM_OK) {
        close(fd);
        return GLM_OK;
    }
    if (status == GLM_EBUSY)
        port_holder(port, holder, sizeof holder);
    glm_fail(err, status, "%s%s", found.message, holder);
    if (status == GLM_EIO && port < 1024)
        glm_error_hint(err, "ports below 1024 are the system's: set lanes[].listen to another");
    return status;
}
