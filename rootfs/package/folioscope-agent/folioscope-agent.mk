################################################################################
#
# folioscope-agent
#
################################################################################

# A directory that holds the static arm64 program, set by rootfs/buildroot.sh.
FOLIOSCOPE_AGENT_VERSION = local
FOLIOSCOPE_AGENT_SITE = $(FOLIOSCOPE_AGENT_PROGRAM)
FOLIOSCOPE_AGENT_SITE_METHOD = local
FOLIOSCOPE_AGENT_LICENSE = GPL-2.0

ifeq ($(BR_BUILDING)$(BR2_PACKAGE_FOLIOSCOPE_AGENT)$(FOLIOSCOPE_AGENT_PROGRAM),yy)
$(error FOLIOSCOPE_AGENT_PROGRAM is not set: use rootfs/buildroot.sh, or name the directory that holds folioscope-agent)
endif

define FOLIOSCOPE_AGENT_INSTALL_TARGET_CMDS
	$(INSTALL) -D -m 0755 $(@D)/folioscope-agent $(TARGET_DIR)/init
endef

$(eval $(generic-package))
