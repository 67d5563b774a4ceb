/* Programs of others, all begun at once and waited for: a compiler's runs, a JavaScript engine's. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "load.h"

#define MOST_COMMANDS 64
#define MOST_WORDS 16

static char *commands[MOST_COMMANDS][MOST_WORDS + 1];
static int count;

/* A command in each line of this file: a program's path and its arguments. */
static void read_commands(const char *path)
{
	FILE *file = fopen(path, "r");
	char *line = NULL;
	size_t room = 0;

	if (!file)
		err(1, "expected commands in %s", path);
	for (count = 0; getline(&line, &room, file) > 0; count++, line = NULL) {
		char *rest = NULL, *word = strtok_r(line, " \n", &rest);

		if (count == MOST_COMMANDS)
			errx(1, "expected %d commands or less in %s", MOST_COMMANDS, path);
		for (int at = 0; word; word = strtok_r(NULL, " \n", &rest)) {
			if (at == MOST_WORDS)
				errx(1, "expected %d words or less in each line of %s", MOST_WORDS, path);
			commands[count][at++] = word;
		}
		if (!commands[count][0])
			errx(1, "line %d of %s has no command", count + 1, path);
	}
	fclose(file);
	if (!count)
		errx(1, "%s has no command", path);
}

static pid_t start(char **command)
{
	pid_t child = fork();

	if (child < 0)
		err(1, "fork for %s", command[0]);
	if (child)
		return child;
	if (holding && ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		err(1, "ptrace of %s", command[0]);
	execv(command[0], command);
	err(1, "%s", command[0]);
}

/* Until one that is held stops where it is about to go, with all of its memory. */
static void wait_for_its_end(pid_t child)
{
	int status;
	long signal = 0;

	if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status) ||
	    ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL))
		err(1, "expected a program that has begun and found status %#x", status);
	do {
		if (ptrace(PTRACE_CONT, child, NULL, signal) || waitpid(child, &status, 0) != child)
			err(1, "expected a program to go on");
		if (!WIFSTOPPED(status))
			errx(1, "expected a program that stops at its end and found status %#x", status);
		signal = WSTOPSIG(status);
	} while (status >> 8 != (SIGTRAP | PTRACE_EVENT_EXIT << 8));
}

/* As many as there are turns, each command in turn. */
static void run_all(const char *path)
{
	pid_t children[turns];

	read_commands(path);
	BEGIN(PASS);
	for (long i = 0; i < turns; i++)
		children[i] = start(commands[i % count]);
	for (long i = 0; i < turns; i++) {
		int status = 0;

		if (holding)
			wait_for_its_end(children[i]);
		else if (waitpid(children[i], &status, 0) < 0 || status)
			errx(1, "expected %s to end well and found status %#x", commands[i % count][0], status);
	}
	END(PASS);
}

void compile(size_t bytes)
{
	(void)bytes;
	run_all("/lab/compile");
}

/* The smallest of these files. */
void compile_small(size_t bytes)
{
	(void)bytes;
	run_all("/lab/compile_small");
}

void script(size_t bytes)
{
	(void)bytes;
	run_all("/lab/script_3");
}

/* A third of the list. */
void script_short(size_t bytes)
{
	(void)bytes;
	run_all("/lab/script_1");
}
