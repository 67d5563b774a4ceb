################################################################################
#
# folioscope-loads
#
################################################################################

# tests/loads, set by tests/buildroot/build.sh.
FOLIOSCOPE_LOADS_VERSION = local
FOLIOSCOPE_LOADS_SITE = $(FOLIOSCOPE_LOADS_SOURCE)
FOLIOSCOPE_LOADS_SITE_METHOD = local
FOLIOSCOPE_LOADS_LICENSE = GPL-2.0

# As vmm/setup/loads.sh: the code between two markers must stay as written.
define FOLIOSCOPE_LOADS_BUILD_CMDS
	$(TARGET_CC) -O2 -Wall -Wextra -Werror $(@D)/*.c -o $(@D)/load
endef

define FOLIOSCOPE_LOADS_INSTALL_TARGET_CMDS
	$(INSTALL) -D -m 0755 $(@D)/load $(TARGET_DIR)/lab/load
endef

$(eval $(generic-package))
