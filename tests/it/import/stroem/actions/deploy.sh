#!/bin/bash
echo "deploying to $TARGET"
