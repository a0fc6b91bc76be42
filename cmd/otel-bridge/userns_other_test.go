//go:build unix && !linux

package main

import "syscall"

func userNamespace() *syscall.SysProcAttr { return nil }
