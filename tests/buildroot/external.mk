include $(sort $(wildcard $(BR2_EXTERNAL_FOLIOSCOPE_LOADS_PATH)/package/*/*.mk))
