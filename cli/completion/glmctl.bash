# Generated from the option tables in cli/ by `make generated`.
# bash completion for glmctl. SPDX-License-Identifier: Apache-2.0
_glmctl() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[1]} options='' arguments='' values=''
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W 'plan apply status logs stop restart explain kernels bench version help --help --version' -- "$current")
        return
    fi
    if [ "$command" = kernels ]; then
        if [ "$COMP_CWORD" -eq 2 ]; then
            mapfile -t COMPREPLY < <(compgen -W 'dump --help' -- "$current")
            return
        fi
        command="$command ${COMP_WORDS[2]}"
    fi
    if [ "$command" = kernels ]; then
        if [ "$COMP_CWORD" -eq 2 ]; then
            mapfile -t COMPREPLY < <(compgen -W 'build --help' -- "$current")
            return
        fi
        command="$command ${COMP_WORDS[2]}"
    fi
    case $command in
    help)
        arguments='plan apply status logs stop restart explain kernels bench version '
        ;;
    'plan')
        options='-l --lane --out --refresh --detailed-exitcode -o --output --color -h --help'
        case $previous in
        -l | --lane) values=' ' ;;
        --out) return ;;
        -o | --output) values='text json' ;;
        --color) values='auto always never' ;;
        esac
        ;;
    'apply')
        options='-l --lane -y --yes --replace -o --output --color -h --help'
        case $previous in
        -l | --lane) values=' ' ;;
        --replace) values=' ' ;;
        -o | --output) values='text json' ;;
        --color) values='auto always never' ;;
        esac
        ;;
    'status')
        options='-l --lane -w --watch -o --output --color -h --help'
        case $previous in
        -l | --lane) values=' ' ;;
        -o | --output) values='text json' ;;
        --color) values='auto always never' ;;
        esac
        ;;
    'logs')
        options='-l --lane -n --lines -f --follow -o --output --color -h --help'
        case $previous in
        -l | --lane) values=' ' ;;
        -n | --lines) values=' ' ;;
        -o | --output) values='text json' ;;
        --color) values='auto always never' ;;
        esac
        ;;
    'stop')
        options='-l --lane -y --yes -o --output --color -h --help'
        case $previous in
        -l | --lane) values=' ' ;;
        -o | --output) values='text json' ;;
        --color) values='auto always never' ;;
        esac
        ;;
    'restart')
        options='-l --lane -y --yes -o --output --color -h --help'
        case $previous in
        -l | --lane) values=' ' ;;
        -o | --output) values='text json' ;;
        --color) values='auto always never' ;;
        esac
        ;;
    'explain')
        options='-o --output --color -h --help'
        arguments='apiVersion kind name model model.checkpoint model.served_name model.weights nodes nodes.name nodes.host nodes.device nodes.control nodes.memory nodes.reserve nodes.threads cables cables.ends cables.addresses fabric fabric.transport fabric.topology lanes lanes.name lanes.default lanes.ranks lanes.tp lanes.listen lanes.streams lanes.window lanes.pool lanes.prefill lanes.verify lanes.rotate lanes.formats lanes.formats.experts lanes.formats.dense lanes.formats.head lanes.formats.kv lanes.formats.act lanes.drafters lanes.vision lanes.thinking lanes.effort lanes.limits lanes.limits.max_tokens lanes.limits.max_body lanes.api_key_file'
        case $previous in
        -o | --output) values='text json' ;;
        --color) values='auto always never' ;;
        esac
        ;;
    'kernels dump')
        options='-l --lane -r --rank -k --kernel -o --output --color -h --help'
        case $previous in
        -l | --lane) values=' ' ;;
        -r | --rank) values=' ' ;;
        -k | --kernel) values=' ' ;;
        -o | --output) values='text json' ;;
        --color) values='auto always never' ;;
        esac
        ;;
    'kernels build')
        options='-l --lane -t --target -T --template -o --output --color -h --help'
        case $previous in
        -l | --lane) values=' ' ;;
        -t | --target) values=' ' ;;
        -T | --template) values=' ' ;;
        -o | --output) values='text json' ;;
        --color) values='auto always never' ;;
        esac
        ;;
    'bench')
        options='-l --lane --prompts --reply --runs -o --output --color -h --help'
        case $previous in
        -l | --lane) values=' ' ;;
        --prompts) values=' ' ;;
        --reply) values=' ' ;;
        --runs) values=' ' ;;
        -o | --output) values='text json' ;;
        --color) values='auto always never' ;;
        esac
        ;;
    'version')
        options='-o --output --color -h --help'
        case $previous in
        -o | --output) values='text json' ;;
        --color) values='auto always never' ;;
        esac
        ;;
    esac
    if [ -n "$values" ]; then
        mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current")
    elif [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
    elif [ -n "$arguments" ]; then
        mapfile -t COMPREPLY < <(compgen -W "$arguments" -- "$current")
    fi
}
complete -o bashdefault -o default -F _glmctl glmctl
