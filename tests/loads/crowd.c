/* Several tasks of one load, processes or threads, which begin and end each interval together. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "load.h"

bool alone;
bool holding;
int tasks;
_Thread_local int task;

static pthread_barrier_t *barrier;
static void (*load)(size_t bytes);
static size_t load_bytes;

void meet(void)
{
	if (tasks > 1)
		pthread_barrier_wait(barrier);
}

void hold(void)
{
	if (task || !holding)
		return;
	holding = false;
	raise(SIGSTOP);
}

/* The tasks go round the CPUs that there are. */
static void *one(void *number)
{
	task = (intptr_t)number;
	if (tasks > 1) {
		cpu_set_t cpus;

		CPU_ZERO(&cpus);
		CPU_SET(task % sysconf(_SC_NPROCESSORS_ONLN), &cpus);
		if (sched_setaffinity(0, sizeof(cpus), &cpus))
			err(1, "sched_setaffinity of task %d", task);
	}
	load(load_bytes);
	return NULL;
}

/* A task that fails ends all: the others wait for it. */
static void end_all(int status, void *nothing)
{
	(void)nothing;
	if (status)
		kill(0, SIGTERM);
}

static void processes(void)
{
	for (intptr_t number = 1; number < tasks; number++) {
		pid_t child = fork();

		if (child < 0)
			err(1, "fork of task %d", (int)number);
		if (!child) {
			one((void *)number);
			_exit(0);
		}
	}
	one(NULL);
	for (int number = 1; number < tasks; number++) {
		int status;

		if (wait(&status) < 0 || status)
			errx(1, "expected a task to end well and found status %d", status);
	}
}

static void in_threads(void)
{
	pthread_t thread[tasks];

	for (intptr_t number = 1; number < tasks; number++)
		if ((errno = pthread_create(&thread[number], NULL, one, (void *)number)))
			err(1, "start of thread %d", (int)number);
	one(NULL);
	for (int number = 1; number < tasks; number++)
		pthread_join(thread[number], NULL);
}

void crowd(int count, bool threads, bool held, void (*run)(size_t bytes), size_t bytes)
{
	pthread_barrierattr_t shared;

	tasks = count;
	alone = count == 1 && !held;
	holding = held;
	load = run;
	load_bytes = bytes;
	/* Whoever started us ends, and with it all of its group. */
	if (held && setsid() < 0)
		err(1, "setsid");
	if (count > 1) {
		barrier = (void *)map(sizeof(*barrier), MAP_SHARED | MAP_ANONYMOUS, -1);
		pthread_barrierattr_init(&shared);
		pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
		pthread_barrier_init(barrier, &shared, count);
		if (!held)
			setpgid(0, 0);
		on_exit(end_all, NULL);
	}
	(threads ? in_threads : processes)();
}
