# look.sh DIR: prints what is below a directory: names, kinds, modes, times, where links lead, and what files hold. Of directories no sizes.
cd "$1"
LC_ALL=C
export LC_ALL
find . \( -type d -printf '%p %y %m %T@\n' -o -printf '%p %y %m %s %T@ %n %l\n' \) | sort
find . -type f -print0 | sort -z | xargs -0 sha256sum
find . -type f -print0 | sort -z | xargs -0 python3 -c 'import os, sys
for path in sys.argv[1:]:
    for name in sorted(os.listxattr(path)):
        print(path, name, os.getxattr(path, name))'
