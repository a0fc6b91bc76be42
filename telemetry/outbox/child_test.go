package outbox_test

const crashChildEnv = "OUTBOX_CRASH_CHILD"

func crashChild() {}
