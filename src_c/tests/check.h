/* Counted checks, shared by the files of the C tests. */
#ifndef FSPEC_TESTS_CHECK_H
#define FSPEC_TESTS_CHECK_H

#include <stdio.h>

extern int checks, failures;

#define CHECK(condition, ...)                                  \
    do {                                                       \
        checks++;                                              \
        if (!(condition)) {                                    \
            failures++;                                        \
            printf("%s:%d: %s: ", __FILE__, __LINE__, #condition);     \
            printf(__VA_ARGS__);                               \
            printf("\n");                                      \
        }                                                      \
    } while (0)

void test_chains(void);  /* test_chain.c */
void test_closed(void);  /* check_closed.c */
void test_runs(void);    /* check_run.c */
void test_sharing(void); /* check_sharing.c */

#endif
