include $(sort $(wildcard $(BR2_EXTERNAL_FOLIOSCOPE_PATH)/package/*/*.mk))
