/* TCP over loopback: what one CPU allocates to send, another one frees as it has been read. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "load.h"

static void pin(int cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		err(1, "sched_setaffinity to CPU %d", cpu);
}

static int stream(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0)
		err(1, "expected a socket of TCP");
	return fd;
}

static void loopback_up(int fd)
{
	struct ifreq request = { .ifr_name = "lo" };

	if (ioctl(fd, SIOCGIFFLAGS, &request))
		err(1, "flags of lo");
	request.ifr_flags |= IFF_UP;
	if (ioctl(fd, SIOCSIFFLAGS, &request))
		err(1, "lo cannot be set up");
}

/* Reads all that is sent: after the last byte of a size's messages the other side gets one back. */
static void receive(int fd, const size_t *sizes, size_t count)
{
	const size_t length = 65536;
	char *buffer = map(length, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	pin(1);
	for (size_t size = 0; size < count; size++) {
		for (size_t left = sizes[size] * turns; left;) {
			ssize_t got = read(fd, buffer, left < length ? left : length);

			if (got <= 0)
				err(1, "expected %zu bytes more", left);
			left -= got;
		}
		if (write(fd, buffer, 1) != 1)
			err(1, "answer");
	}
	_exit(0);
}

static void messages(int fd, const char *buffer, size_t size)
{
	for (long turn = 0; turn < turns; turn++)
		for (size_t at = 0; at < size;) {
			ssize_t sent = write(fd, buffer + at, size - at);

			if (sent <= 0)
				err(1, "message of %zu bytes", size);
			at += sent;
		}
	char answer;

	if (read(fd, &answer, 1) != 1)
		err(1, "expected an answer");
}

#define SEND(fd, buffer, size)			\
	do {					\
		BEGIN(SEND_##size);		\
		messages(fd, buffer, size);	\
		END(SEND_##size);		\
	} while (0)

void tcp(size_t bytes)
{
	static const size_t sizes[] = { 64, 128, 256, 1024, 2048, 3312, 4096, 8192, 16384 };
	static char buffer[16384];
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	int listening = stream(), status;
	(void)bytes;

	loopback_up(listening);
	if (bind(listening, (void *)&address, sizeof(address)) || listen(listening, 1) ||
	    getsockname(listening, (void *)&address, &length))
		err(1, "expected a port to listen on");
	memset(buffer, 1, sizeof(buffer));
	pid_t receiver = fork();

	if (receiver < 0)
		err(1, "fork");
	if (!receiver)
		receive(accept(listening, NULL, NULL), sizes, sizeof(sizes) / sizeof(sizes[0]));
	pin(0);
	int fd = stream();

	if (connect(fd, (void *)&address, sizeof(address)))
		err(1, "connect");
	SEND(fd, buffer, 64);
	SEND(fd, buffer, 128);
	SEND(fd, buffer, 256);
	SEND(fd, buffer, 1024);
	SEND(fd, buffer, 2048);
	SEND(fd, buffer, 3312);
	SEND(fd, buffer, 4096);
	SEND(fd, buffer, 8192);
	SEND(fd, buffer, 16384);
	close(fd);
	close(listening);
	if (waitpid(receiver, &status, 0) != receiver || status)
		errx(1, "expected the receiver to end well and found status %d", status);
}
