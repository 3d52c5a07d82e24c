/* Whether a TPU is in this machine, from its device files alone: asking a library or a server may wait for minutes. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "pjrt/internal.h"

/* Google's PCI vendor id and its TPU chips (v2 and v3, an unnamed one, v4, v5p, v5e, v6e, TPU7x):
 * jax/_src/hardware_utils.py. Google's network and storage devices have other device ids. */
static const char google_vendor[] = "0x1ae0";
static const char *const tpu_chips[] = {"0x0027", "0x0056", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076"};

/* The first word of a small file, or "". */
static void read_word(const char *directory, const char *name, const char *file, char word[16]) {
    char path[1024];
    word[0] = '\0';
    int length = snprintf(path, sizeof path, "%s/%s/%s", directory, name, file);
    if (length < 0 || (size_t)length >= sizeof path) return;
    FILE *f = fopen(path, "r");
    if (!f) return;
    if (fscanf(f, "%15s", word) != 1) word[0] = '\0';
    fclose(f);
}

static bool is_tpu_chip(const char *directory, const char *name) {
    char vendor[16], device[16];
    read_word(directory, name, "vendor", vendor);
    if (strcmp(vendor, google_vendor) != 0) return false;
    read_word(directory, name, "device", device);
    for (size_t i = 0; i < sizeof tpu_chips / sizeof *tpu_chips; i++)
        if (strcmp(device, tpu_chips[i]) == 0) return true;
    return false;
}

/* The driver of TPUs up to v4 makes files /dev/accel0, /dev/accel1, ...; others' accelerators are files in a directory
 * /dev/accel. */
static bool is_accel_file(const char *directory, const char *name) {
    (void)directory;
    return strncmp(name, "accel", 5) == 0 && name[5] >= '0' && name[5] <= '9';
}

static bool any_entry(const char *root, const char *below, bool (*matches)(const char *directory, const char *name)) {
    char path[512];
    int length = snprintf(path, sizeof path, "%s%s", root, below);
    if (length < 0 || (size_t)length >= sizeof path) return false;
    DIR *directory = opendir(path);
    if (!directory) return false;
    bool found = false;
    for (struct dirent *e; !found && (e = readdir(directory));) found = matches(path, e->d_name);
    closedir(directory);
    return found;
}

bool pjrt_tpu_attached_below(const char *root) {
    return any_entry(root, "/dev", is_accel_file) || any_entry(root, "/sys/bus/pci/devices", is_tpu_chip);
}

bool pjrt_tpu_attached(void) { return pjrt_tpu_attached_below(""); }
