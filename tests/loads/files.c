/* iozone's patterns on a file of ramfs, by records of 4K: through a mapping, whose faults bring the pages in, and by system calls. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "load.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Of each task its own, a thread's too. */
static _Thread_local char buffer[4096];

void ramfs(size_t bytes)
{
	(void)bytes;
	if (mkdir("/ramfs", 0700) && errno != EEXIST)
		err(1, "mkdir /ramfs");
	if (access("/ramfs/mounted", F_OK)) {
		if (mount("ramfs", "/ramfs", "ramfs", 0, NULL))
			err(1, "mount of ramfs");
		close(open("/ramfs/mounted", O_CREAT | O_WRONLY, 0600));
	}
}

static const char *path(void)
{
	static _Thread_local char name[32];

	snprintf(name, sizeof(name), "/ramfs/file%d", task);
	return name;
}

static int ramfs_file(size_t bytes)
{
	/* Each pattern comes to every record once where they are a power of two. */
	if (bytes & (bytes - 1))
		errx(2, "expected a file whose size is a power of two and found %zu bytes", bytes);
	int fd = open(path(), O_CREAT | O_TRUNC | O_RDWR, 0600);

	if (fd < 0 || ftruncate(fd, bytes))
		err(1, "expected a file of %zu bytes on ramfs", bytes);
	return fd;
}

static void file_end(int fd)
{
	close(fd);
	unlink(path());
}

/* The record that a pattern comes to behind this one. By chance: a linear congruence of full period. */
ALWAYS_INLINE size_t next(int interval, size_t record, size_t records)
{
	switch (interval) {
	case REVERSE:
		return (record - 1) & (records - 1);
	case STRIDE:
		return (record + 17) & (records - 1);
	case RANDOM_READ:
	case RANDOM_WRITE:
		return (record * 1664525 + 1013904223) & (records - 1);
	default:
		return record + 1;
	}
}

ALWAYS_INLINE bool writes(int interval)
{
	return interval == PASS || interval == AGAIN || interval == RANDOM_WRITE;
}

ALWAYS_INLINE void mapped(int interval, int fd, size_t bytes)
{
	size_t records = bytes / sizeof(buffer), record = interval == REVERSE ? records - 1 : 0;
	char *area = map(bytes, MAP_SHARED, fd);

	BEGIN(interval);
	for (size_t i = 0; i < records; i++, record = next(interval, record, records)) {
		char *at = area + record * sizeof(buffer);

		if (writes(interval))
			memcpy(at, buffer, sizeof(buffer));
		else
			memcpy(buffer, at, sizeof(buffer));
		/* Each copy is made. */
		asm volatile("" : : : "memory");
	}
	END(interval);
	unmap(area, bytes);
}

ALWAYS_INLINE void called(int interval, int fd, size_t bytes)
{
	size_t records = bytes / sizeof(buffer), record = interval == REVERSE ? records - 1 : 0;

	BEGIN(interval);
	for (size_t i = 0; i < records; i++, record = next(interval, record, records)) {
		off_t at = record * sizeof(buffer);
		ssize_t done = writes(interval) ? pwrite(fd, buffer, sizeof(buffer), at)
						: pread(fd, buffer, sizeof(buffer), at);

		if (done != sizeof(buffer))
			err(1, "expected a record of %zu bytes and found %zd", sizeof(buffer), done);
	}
	END(interval);
}

/* The first brings the file's pages. */
#define EACH_PATTERN(way, fd, bytes)			\
	do {						\
		way(PASS, fd, bytes);			\
		way(AGAIN, fd, bytes);			\
		way(READ, fd, bytes);			\
		way(REREAD, fd, bytes);			\
		way(REVERSE, fd, bytes);		\
		way(STRIDE, fd, bytes);			\
		way(RANDOM_READ, fd, bytes);		\
		way(RANDOM_WRITE, fd, bytes);		\
	} while (0)

void file_map(size_t bytes)
{
	int fd = ramfs_file(bytes);

	EACH_PATTERN(mapped, fd, bytes);
	file_end(fd);
}

void file_calls(size_t bytes)
{
	int fd = ramfs_file(bytes);

	EACH_PATTERN(called, fd, bytes);
	file_end(fd);
}
