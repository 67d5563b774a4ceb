// SPDX-License-Identifier: GPL-2.0-only
/*
 * An init before init: every private mapping that is to lie at a given address and replace nothing (as a workload's areas do)
 * never comes back, in all processes from here on. Nobody answers the notification of the filter (seccomp(2)). Without a
 * C library.
 */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/mman.h>
#include <linux/seccomp.h>
#include <stddef.h>

#include "call.h"

#ifndef PR_SET_NO_NEW_PRIVS
#define PR_SET_NO_NEW_PRIVS 38
#endif
#define SIGCHLD 17
#define KINDS (MAP_TYPE | MAP_FIXED_NOREPLACE)

void _start(void)
{
	static struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mmap, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, KINDS),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MAP_PRIVATE | MAP_FIXED_NOREPLACE, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(*code), code };
	char *argv[] = { "/init", NULL }, *none[] = { NULL };

	call(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0);
	if (call(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, (long)&filter, 0, 0, 0) < 0)
		call(__NR_exit_group, 1, 0, 0, 0, 0, 0);
	/* A listener that is closed would answer; a child keeps it. */
	if (call(__NR_clone, SIGCHLD, 0, 0, 0, 0, 0) == 0)
		for (;;)
			call(__NR_ppoll, 0, 0, 0, 0, 0, 0);
	call(__NR_execve, (long)argv[0], (long)argv, (long)none, 0, 0, 0);
	call(__NR_exit_group, 1, 0, 0, 0, 0, 0);
}
